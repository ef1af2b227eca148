package sliver

import "math"

// Weights divide processor time among slivers that want more than there is: by cores, which limits alone do not do.
// A slice weighs as much as its slivers that have cores, and once more for all others together; so a slice that has
// none is not worth more for having many slivers.
const (
	weightOfCore = 100 // what the kernel gives a group by itself (cgroup2; 1024 shares of version 1)
	leastWeight  = 1
	mostWeight   = 10000
)

// weightOf gives the weight of a sliver that has so many cores; 0: it has none of its own.
func weightOf(cores float64) uint64 {
	return uint64(min(max(math.Round(cores*weightOfCore), leastWeight), mostWeight))
}

// weigh gives a slice the weight of the slivers that it has now. Slivers without cores make no difference, and are made
// and deleted without it: it looks at all slivers of the slice.
func (r *Runtime) weigh(id uint16) error {
	r.weighing.Lock()
	defer r.weighing.Unlock()
	group := r.groupOfSlice(id)
	slivers, err := r.groups.children(group)
	if err != nil {
		return err
	}
	sum := uint64(leastWeight)
	for _, name := range slivers {
		if w := r.groups.weight(group + "/" + name); w > leastWeight {
			sum += w
		}
	}
	return r.groups.limit(group, limits{weight: min(sum, mostWeight)})
}
