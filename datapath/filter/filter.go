// Package filter writes the ternary tables of packet programs (bpf/filter.h has their layout). A table is as a TCAM
// would be: it has filters, each with a key, a mask, a priority and a result; a lookup gives the filter of the highest
// priority that matches, and on demand all that match, in their order. The package is given numbers: it knows nothing
// of who a table belongs to, and nothing of what a result means.
//
// A lookup sees a table as it was before a batch of changes or as it is after all of them, never a mix. That is so for
// the replacement of a whole table, too: every change of a table is one store of its version. What lookups may still
// need is not used again before the kernel has waited for the programs that run.
package filter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// The bounds of a host. All tables share them.
const (
	MaxTables     = 4096    // ids are less
	MaxFilters    = 1 << 17 // nearly as many more can be on their way out
	MaxMasks      = 8192    // distinct in their table
	MaxTableMasks = 256     // of one table
	MaxKeyBytes   = 64
	MaxSame       = 512 // filters of one table with the same mask and key, and different priorities
)

// The errors that callers decide on. What returns one of them, or any other error, has changed nothing.
var (
	ErrLength  = errors.New("wrong length")
	ErrExists  = errors.New("there is a filter with this key, mask and priority")
	ErrMissing = errors.New("there is no filter with this key, mask and priority")
	ErrQuota   = errors.New("the quota is used up")
	ErrFull    = errors.New("the host has no room for more filters")
	ErrClosed  = errors.New("the table has been removed")
)

// An Error says which of several filters is to blame.
type Error struct {
	Number, Of int // from 1
	Err        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("filter %d of %d: %v", e.Number, e.Of, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A Result is what a lookup gives to the program: struct filter_result, whose bytes mean nothing here.
type Result [64]byte

// A Filter matches a key whose bits are those of Key wherever Mask has a one. What Key has where Mask has none does not
// count. Key, Mask and Priority name a filter within its table.
type Filter struct {
	Key, Mask []byte // as long as the table's keys
	Priority  uint32 // the highest one wins; of equal ones, the filter that was inserted first
	Result    Result
}

// An Entry is a filter that is in a table.
type Entry struct {
	Filter
	Hits uint64 // lookups that found it, since it was inserted
	Rank uint64 // what programs are told of it; the higher one wins, and no two filters of a table have the same
}

// A Quota bounds what one table may use of what all share.
type Quota struct {
	Filters int // up to MaxFilters
	Masks   int // distinct; up to MaxTableMasks
}

// Filters writes the tables. There is one writer at a time. Its methods, and those of its tables, may be called
// concurrently.
type Filters struct {
	release func() error // the maps

	mu sync.Mutex // guards what follows, and writing the maps
	*memory
	tables map[uint32]*Table
	gone   map[uint32]*Table // removed, and not forgotten yet
	live   int               // filters of all tables
	masks  int               // that live filters have
}

// A Table is one of the tables.
type Table struct {
	filters *Filters
	id      uint32
	bytes   int // of a key

	// Guarded by filters.mu.
	quota     Quota
	budget    Budget
	masks     map[key]*mask
	places    []*mask // in the order in which they are looked at
	span      span    // where that is written
	order     uint32  // of the filter that was inserted last: it gives the lower half of ranks
	live      int     // filters
	used      int     // masks that these have
	disturbed bool    // masks may be out of order, or of no use, or bounds too high
	closed    bool
	cleared   int // waits when it lost its last mask
}

// Usage is how much is in use.
type Usage struct {
	Tables, TablesBound   int
	Filters, FiltersBound int
	Masks, MasksBound     int
	Leaving               int   // filters that were deleted, and whose room cannot be used yet
	Bytes, BytesBound     int64 // kernel memory
}

// Table makes a table, or takes over the one that is there, also of an earlier process. Its keys have so many bytes, 1
// to MaxKeyBytes. A quota that is less than what the table has is no error: the table cannot grow then.
func (f *Filters) Table(id uint32, keyBytes int, quota Quota) (*Table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keyBytes < 1 || keyBytes > MaxKeyBytes {
		return nil, fmt.Errorf("make table %d: %w: keys of %d bytes, and not of 1 to %d",
			id, ErrLength, keyBytes, MaxKeyBytes)
	}
	if id >= MaxTables {
		return nil, fmt.Errorf("make table %d: ids go to %d", id, MaxTables-1)
	}
	t := f.tables[id]
	if t == nil {
		if err := f.awaitTable(id); err != nil {
			return nil, fmt.Errorf("make table %d: %w", id, err)
		}
		t = f.newTable(id, keyBytes)
		f.store32(&f.index.table[id].words, uint32(hashedWords(keyBytes)))
		f.store32(&f.index.table[id].bytes, uint32(keyBytes))
	}
	if t.bytes != keyBytes {
		return nil, fmt.Errorf("take over table %d: %w: its keys have %d bytes, and not %d",
			id, ErrLength, t.bytes, keyBytes)
	}
	t.quota = quota
	return t, nil
}

func (f *Filters) newTable(id uint32, keyBytes int) *Table {
	t := &Table{
		filters: f, id: id, bytes: keyBytes, masks: map[key]*mask{},
		quota: Quota{Filters: math.MaxInt, Masks: math.MaxInt},
	}
	f.tables[id] = t
	return t
}

// Tables lists the tables that are there, also those of an earlier process.
func (f *Filters) Tables() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []uint32
	for id := range f.tables {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

// Tidy waits for the programs that run, and then gives back what was deleted. Batches do so when they need the room;
// to call it now and then makes lookups faster, where much was deleted, and batches.
func (f *Filters) Tidy() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.dying) == 0 && !f.resting() && !f.oversized() {
		return nil
	}
	for range 2 { // what the first wait takes out of chains, the second one gives back
		if err := f.sweep(); err != nil {
			return fmt.Errorf("tidy up filters: %w", err)
		}
		f.reorderAll()
	}
	if err := f.shrink(); err != nil {
		return fmt.Errorf("tidy up filters: %w", err)
	}
	return nil
}

// Wait returns when no program runs any more that was running before.
func (f *Filters) Wait() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.await()
}

// Usage says how much is in use.
func (f *Filters) Usage() Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	used, rest := f.used()
	return Usage{
		Tables: len(f.tables), TablesBound: MaxTables,
		Filters: f.live, FiltersBound: MaxFilters,
		Masks: f.masks, MasksBound: MaxMasks,
		Leaving: used - f.live + rest,
		Bytes:   fixedBytes + int64(f.made)*f.chunkBytes(), BytesBound: fixedBytes + maxChunks*f.chunkBytes(),
	}
}

// Close lets go of the maps; what is in them stays in force. Neither it nor its tables may be used afterwards.
func (f *Filters) Close() error {
	if err := f.release(); err != nil {
		return fmt.Errorf("close the filters' maps: %w", err)
	}
	return nil
}
