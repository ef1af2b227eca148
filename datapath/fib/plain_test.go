package fib

import (
	"fmt"
	"maps"
	"testing"
)

// plain is the kernel's side in plain memory, which survives a FIB as the maps do.
type plain struct {
	chunks          [][]uint32
	hops            []nexthop
	legs            []legRecord
	routers         []routerRecord
	shortcuts       []shortcut
	possibleSources []uint64
	lease           uint64
	neighbours      plainTable[neighbourKey, uint64]
	sources         plainTable[sourceKey, uint32]
	waits           int
}

func newPlain() *plain {
	return &plain{
		hops: make([]nexthop, 1024), legs: make([]legRecord, 64), routers: make([]routerRecord,
			16), shortcuts: make([]shortcut, maxShortcuts),
		possibleSources: make([]uint64, possibleBits/64),
		neighbours:      plainTable[neighbourKey, uint64]{}, sources: plainTable[sourceKey, uint32]{},
	}
}

func (p *plain) open(t fataler) *FIB {
	m := newMemory(p, p.hops)
	for m.made < len(p.chunks) {
		m.chunks[m.made] = p.chunks[m.made]
		m.made++
	}
	f := &FIB{
		memory: m, legs: p.legs, routers: p.routers, shortcuts: p.shortcuts, possibleSources: p.possibleSources,
		lease: &p.lease, release: func() error { return nil },
		neighbours: p.neighbours, sources: p.sources,
	}
	if err := f.adopt(); err != nil {
		t.Fatalf("open: %v", err)
	}
	return f
}

type fataler interface{ Fatalf(string, ...any) }

func (p *plain) grow(n, count int) ([][]uint32, error) {
	if n != len(p.chunks) {
		return nil, fmt.Errorf("chunk %d after %d", n, len(p.chunks))
	}
	for range count {
		p.chunks = append(p.chunks, make([]uint32, chunkNodes*nodeEntries))
	}
	return p.chunks[n:], p.wait()
}

func (p *plain) wait() error {
	p.waits++
	return nil
}

type plainTable[K comparable, V any] map[K]V

func (t plainTable[K, V]) bound() int { return 100 }
func (t plainTable[K, V]) put(k K, v V) error {
	if _, ok := t[k]; !ok && len(t) == t.bound() {
		return fmt.Errorf("%w: all %d are in use", ErrFull, t.bound())
	}
	t[k] = v
	return nil
}
func (t plainTable[K, V]) drop(k K) error        { delete(t, k); return nil }
func (t plainTable[K, V]) get(k K) (V, bool)     { v, ok := t[k]; return v, ok }
func (t plainTable[K, V]) all() (map[K]V, error) { return maps.Clone(t), nil }

func mustRouter(t testing.TB, f *FIB) *Router {
	t.Helper()
	r, err := f.NewRouter(1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t fataler, err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}
