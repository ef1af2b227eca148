package filter

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// kernel is what memory needs of the maps.
type kernel interface {
	// grow puts so many chunks in place, the first as number n, and as many stripes of counters for each, all zero.
	// On return no program runs that was running before.
	grow(n, count, stripes int) ([]*chunk, [][]*counters, error)
	// wait returns when no program runs any more that was running before.
	wait() error
}

// memory hands out filters' numbers and numbers of masks. What is given back may still be looked at by programs: it
// rests until the kernel has waited for them, which is done for many at once.
type memory struct {
	kernel  kernel
	index   *index
	buckets *bucketMemory
	chunks  [maxChunks]*chunk
	hits    [maxChunks][]*counters
	stored  func() // tests look at every state

	made    int // chunks
	class   [maxChunks]int
	holds   [maxChunks]int // numbers that are used or rest
	numbers map[int]*stock // of filters, by the words of their keys
	ids     stock          // of masks
	info    []info         // of filters, by number
	byID    [MaxMasks]*mask
	dying   []death  // filters that were deleted, and are still in their chains
	newborn []uint32 // filters whose life is looked at
	spans   spans
	chains  *region     // in use
	left    map[int]int // when buckets were given up, by waits: of sizes of so many bits
	waits   int         // that have ended
}

// info is what only this process knows of a filter.
type info struct {
	mask *mask // whose chains have it; nil: none
	at   int   // in mask.filters
}

// A death is a filter that was deleted.
type death struct {
	number uint32
	heir   uint32 // the filter that has taken its place; 0: none
	known  uint64 // hits that the heir knows of
}

// A stock is what can be handed out: now, or after the next wait.
type stock struct {
	used       int
	free, rest []uint32
}

func (s *stock) take() uint32 {
	last := len(s.free) - 1
	n := s.free[last]
	s.free = s.free[:last]
	s.used++
	return n
}

func (s *stock) giveBack(n uint32) {
	s.rest = append(s.rest, n)
	s.used--
}

func (s *stock) rested() {
	s.free = append(s.free, s.rest...)
	s.rest = s.rest[:0]
}

func newMemory(k kernel, x *index, b *bucketMemory) *memory {
	m := &memory{
		kernel: k, index: x, buckets: b, numbers: map[int]*stock{2: {}, 4: {}, words: {}}, left: map[int]int{},
	}
	for id := MaxMasks - 1; id > 0; id-- {
		m.ids.free = append(m.ids.free, uint32(id))
	}
	return m
}

// store32 and store64 are how everything is written that programs may see.
func (m *memory) store32(at *uint32, v uint32) {
	atomic.StoreUint32(at, v)
	if m.stored != nil {
		m.stored()
	}
}

func (m *memory) store64(at *uint64, v uint64) {
	atomic.StoreUint64(at, v)
	if m.stored != nil {
		m.stored()
	}
}

// entry is where a filter's head and key are.
func (m *memory) entry(n uint32) (*head, []uint64) {
	words := m.class[n/chunkSize]
	at := int(n%chunkSize) * (filterHead + words)
	all := m.chunks[n/chunkSize].filter[at : at+filterHead+words]
	return (*head)(unsafe.Pointer(&all[0])), all[filterHead:]
}

func (m *memory) head(n uint32) *head {
	h, _ := m.entry(n)
	return h
}

func (m *memory) keyOf(n uint32) (k key) {
	_, words := m.entry(n)
	copy(k[:], words)
	return k
}

func (m *memory) lifeOf(n uint32) *life { return &m.chunks[n/chunkSize].life[n%chunkSize] }

func (m *memory) resultOf(n uint32) *Result { return &m.chunks[n/chunkSize].result[n%chunkSize] }

// lives reports whether a filter is one that was not deleted, for the writer: changes that are under way have been
// made.
func (m *memory) lives(n uint32) bool {
	return m.head(n).passing == 0 || m.lifeOf(n).died == alive
}

// hitsOf is how often a filter was hit, with those whose place it took.
func (m *memory) hitsOf(n uint32) uint64 {
	hits := m.chunks[n/chunkSize].hits[n%chunkSize]
	for _, stripe := range m.hits[n/chunkSize] {
		hits += load64(&stripe[n%chunkSize])
	}
	return hits
}

func (m *memory) clearHits(n uint32) {
	m.chunks[n/chunkSize].hits[n%chunkSize] = 0
	for _, stripe := range m.hits[n/chunkSize] {
		atomic.StoreUint64(&stripe[n%chunkSize], 0)
	}
}

func (m *memory) stripes() int { return int(m.index.stripes) }

func (m *memory) chunkBytes() int64 {
	return int64(unsafe.Sizeof(chunk{})) + int64(m.stripes())*int64(unsafe.Sizeof(counters{}))
}

// used counts the filters' numbers that are used, with those of filters that were deleted, and those that rest.
func (m *memory) used() (used, rest int) {
	for _, s := range m.numbers {
		used, rest = used+s.used, rest+len(s.rest)
	}
	return used, rest
}

// newNumber is the number of a filter whose key has so many words. It grows rather than waits while few filters are on
// their way out, so that each wait is for many.
func (f *Filters) newNumber(words int) (uint32, error) {
	s := f.numbers[words]
	if few := max(8*chunkSize, f.live/4); len(s.free) == 0 && len(s.rest)+len(f.dying) < few && f.made < maxChunks {
		if err := f.grow(words); err != nil && len(s.rest) == 0 {
			return 0, err
		}
	}
	for tries := 0; len(s.free) == 0; tries++ {
		used, rest := f.used()
		if f.convert(words) {
			break
		}
		if tries == 2 || rest == 0 && len(f.dying) == 0 {
			return 0, fmt.Errorf("%w: %d filters are in use or on their way out", ErrFull, used)
		}
		if err := f.sweep(); err != nil {
			return 0, err
		}
	}
	n := s.take()
	f.holds[n/chunkSize]++
	return n, nil
}

// convert makes a chunk that is not used one for keys of so many words.
func (m *memory) convert(words int) bool {
	for c := range m.made {
		if m.holds[c] > 0 || m.class[c] == words {
			continue
		}
		was := m.numbers[m.class[c]]
		kept := was.free[:0]
		for _, n := range was.free {
			if n/chunkSize != uint32(c) {
				kept = append(kept, n)
			}
		}
		was.free = kept
		m.addChunk(c, words)
		return true
	}
	return false
}

// addChunk makes all numbers of a chunk free. Number 0 is no filter's.
func (m *memory) addChunk(c, words int) {
	m.class[c] = words
	for i := chunkSize - 1; i >= 0; i-- {
		if n := uint32(c*chunkSize + i); n != 0 {
			m.numbers[words].free = append(m.numbers[words].free, n)
		}
	}
}

// grow adds a quarter to the chunks that are there: so there are few waits on the way to many filters.
func (f *Filters) grow(words int) error {
	count := min(1+f.made/4, maxChunks-f.made)
	chunks, hits, err := f.kernel.grow(f.made, count, f.stripes())
	if err != nil {
		return fmt.Errorf("add %d chunks of filters to %d: %w", count, f.made, err)
	}
	for i, c := range chunks {
		f.chunks[f.made], f.hits[f.made] = c, hits[i]
		f.info = append(f.info, make([]info, chunkSize)...)
		f.addChunk(f.made, words)
		f.made++
	}
	f.swept()
	return nil
}

// sweep waits for the programs that run, and gives back what only they could still have needed.
func (f *Filters) sweep() error {
	if f.made == 0 {
		return f.grow(2) // the first chunk, of which wait makes use
	}
	if err := f.kernel.wait(); err != nil {
		return fmt.Errorf("wait for the programs that run: %w", err)
	}
	f.swept()
	return nil
}

func (f *Filters) swept() {
	f.waits++
	for _, s := range f.numbers {
		for _, n := range s.rest {
			f.holds[n/chunkSize]--
		}
		s.rested()
	}
	f.ids.rested()
	f.spans.rested()
	f.settle()
	dying := f.dying
	f.dying = nil
	for _, d := range dying {
		f.info[d.number].mask.table.disturbed = true
		f.bequeath(d)
		f.unlink(d.number)
	}
}

// settle lets lookups take for granted that filters are there that were inserted before the wait.
func (f *Filters) settle() {
	kept := f.newborn[:0]
	for _, n := range f.newborn {
		switch {
		case f.info[n].mask == nil || f.lifeOf(n).died != alive: // it has gone since, or is going
		case f.lifeOf(n).born > f.index.table[f.info[n].mask.table.id].version: // its batch is under way
			kept = append(kept, n)
		default:
			f.store32(&f.head(n).passing, 0)
		}
	}
	f.newborn = kept
}

// bequeath gives the hits of a filter that is dead, and no longer found, to the one that has its place.
func (f *Filters) bequeath(d death) {
	if d.heir != 0 {
		f.chunks[d.heir/chunkSize].hits[d.heir%chunkSize] += f.hitsOf(d.number) - d.known
	}
}

// resting reports whether anything waits to be used again.
func (f *Filters) resting() bool {
	_, rest := f.used()
	return rest > 0 || len(f.newborn) > 0 || len(f.ids.rest) > 0 || len(f.spans.rest) > 0
}
