package sliver

import (
	"math"
	"sync"
)

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

// weights is what slices weigh. A slice's slivers are read once from the kernel and remembered, so one more costs the
// same in a slice of any size.
type weights struct {
	sync.Mutex
	slices map[uint16]map[string]uint64 // the slivers of each slice that weigh more than the least
}

func (w *weights) forget(id uint16) {
	w.Lock()
	defer w.Unlock()
	delete(w.slices, id)
}

// weigh gives a slice the weight of the slivers that it has, of which one now has this weight. 0: it has gone.
func (r *Runtime) weigh(id ID, weight uint64) error {
	w := &r.weights
	w.Lock()
	defer w.Unlock()
	slivers, known := w.slices[id.Slice]
	if !known {
		var err error
		if slivers, err = r.readWeights(id.Slice); err != nil {
			return err
		}
	}
	if known && max(slivers[id.Node], leastWeight) == max(weight, leastWeight) {
		return nil
	}
	if weight > leastWeight {
		slivers[id.Node] = weight
	} else {
		delete(slivers, id.Node)
	}
	sum := uint64(leastWeight)
	for _, one := range slivers {
		sum += one
	}
	delete(w.slices, id.Slice) // unless it has been set
	if err := r.groups.limit(r.groupOfSlice(id.Slice), limits{weight: min(sum, mostWeight)}); err != nil {
		return err
	}
	if w.slices == nil {
		w.slices = map[uint16]map[string]uint64{}
	}
	w.slices[id.Slice] = slivers
	return nil
}

func (r *Runtime) readWeights(id uint16) (map[string]uint64, error) {
	group := r.groupOfSlice(id)
	names, err := r.groups.children(group)
	if err != nil {
		return nil, err
	}
	slivers := map[string]uint64{}
	for _, name := range names {
		if weight := r.groups.weight(group + "/" + name); weight > leastWeight {
			slivers[name] = weight
		}
	}
	return slivers, nil
}
