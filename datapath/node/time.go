package node

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/model/constants"
)

// A part of the processor time that a host has for packet programs is a pool, for slices that have no reservation, each
// of which has a share, and for what the others want beyond theirs. The rest can be reserved. What is not reserved is
// the pool's, too.
const poolTime = 1.0 / constants.PoolPart

// ReservableTime is how much can be reserved of so many cores.
func ReservableTime(cores float64) float64 { return cores * (1 - poolTime) }

// newSecrets decide which frames of a node are measured (bpf/sample.h).
func newSecrets() (secrets [2]uint64) {
	for i := range secrets {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		secrets[i] = binary.NativeEndian.Uint64(b[:])
	}
	return secrets
}

// maxSlices is MAX_SLICES in bpf/fastpath.h.
const maxSlices = 4096

// Time is the processor time of all packet programs of a slice.
type Time struct {
	Reserved float64       // cores
	Spent    time.Duration // measured at one frame in 16
	Metered  uint64        // frames dropped because there was none left
}

// Times reads those of all slices that have packet programs.
func (n *Nodes) Times() (map[uint32]Time, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[uint32]Time{}
	for slice, cores := range n.reserved() {
		var perCPU []objectFastpathUse
		if err := n.config.Maps[objectMapFastpathSpent].Lookup(slice, &perCPU); err != nil {
			return nil, fmt.Errorf("read the processor time of slice %d: %w", slice, err)
		}
		t := Time{Reserved: cores}
		for _, c := range perCPU {
			t.Spent += time.Duration(c.Ns)
			t.Metered += c.Metered
		}
		all[slice] = t
	}
	return all, nil
}

// reserved is how many cores each slice has for itself, of those that have packet programs.
func (n *Nodes) reserved() map[uint32]float64 {
	all := map[uint32]float64{}
	for _, x := range n.nodes {
		if x.runs {
			all[x.about.Slice] += x.about.Bounds.FastPath
		}
	}
	return all
}

// What bpf/fastpath.h measures: one frame in so many, and no more of it than this.
const (
	samples       = 16
	longestSample = 64 * time.Microsecond
)

// bucket is one of map fastpath_times: so many cores; 0: a slice that has reserved none, or a pool without bound.
func bucket(cores float64) (cost, depth, longest uint64) {
	const scale = 1 << 16 // METER_SCALE in bpf/meter.h
	if cores <= 0 {
		return 0, 0, 0
	}
	// The clock of buckets moves by up to 10 ms. And one measured frame, after which the processor was taken away,
	// must not empty the bucket: a slice would lose frames by what it did not do.
	longest = uint64(4 * float64(samples*longestSample) / cores)
	return uint64(math.Round(scale / cores)), max(uint64(20*time.Millisecond), longest), longest
}

// shareTime writes how much processor time each slice has, and the pool: what has changed since it was called last.
func (n *Nodes) shareTime() error {
	if n.config.Cores == 0 {
		return nil
	}
	const pool = 0
	reserved := n.reserved()
	left := n.config.Cores
	for _, cores := range reserved {
		left -= cores
	}
	for slice := uint32(1); slice < maxSlices; slice++ {
		if n.shared != nil && n.shared[slice] == reserved[slice] {
			continue
		}
		if err := n.setTime(slice, reserved[slice]); err != nil {
			return err
		}
	}
	n.shared = reserved
	return n.setTime(pool, max(left, n.config.Cores*poolTime))
}

// setTime changes a bucket that programs may be taking from: what they take at this moment may be lost.
func (n *Nodes) setTime(slice uint32, cores float64) error {
	times := n.config.Maps[objectMapFastpathTimes]
	var t objectFastpathTime
	if err := times.Lookup(slice, &t); err != nil {
		return fmt.Errorf("read the processor time of slice %d: %w", slice, err)
	}
	cost, depth, longest := bucket(cores)
	if t.Cost == cost && t.Depth == depth && t.Longest == longest {
		return nil
	}
	t.Cost, t.Depth, t.Longest = cost, depth, longest
	if err := times.Update(slice, t, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("write the processor time of slice %d: %w", slice, err)
	}
	return nil
}

// forgetTime gives back what a node of the slice had reserved. If that was its last node, it begins to count anew: the
// slice that has the number next is another one.
func (n *Nodes) forgetTime(slice uint32) error {
	if _, there := n.reserved()[slice]; there {
		return n.shareTime()
	}
	spent := n.config.Maps[objectMapFastpathSpent]
	zero := make([]objectFastpathUse, ebpf.MustPossibleCPU())
	err := spent.Put(slice, zero)
	if err != nil {
		err = fmt.Errorf("clear the processor time of slice %d: %w", slice, err)
	}
	return errors.Join(err, n.shareTime())
}
