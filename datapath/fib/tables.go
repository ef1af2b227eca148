package fib

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// many is the owner of an address that several routers of a slice have.
const many = 0xffffffff

// A table is one of the maps that are hashes.
type table[K comparable, V any] interface {
	put(K, V) error // ErrFull
	drop(K) error   // no error if it is not there
	get(K) (V, bool)
	all() (map[K]V, error)
	bound() int
}

// A neighbourKey is struct neighbour in bpf/fib.h.
type neighbourKey struct {
	Port    uint32
	Address [16]byte
}

// A sourceKey is struct source in bpf/fib.h.
type sourceKey struct {
	Slice   uint32
	Address [4]byte
}

func (s station) key() neighbourKey {
	return neighbourKey{Port: uint32(s.port), Address: s.address.As16()}
}

func (f *FIB) putNeighbour(at station, n Neighbour) error {
	f.tables.Lock()
	defer f.tables.Unlock()
	if err := f.neighbours.put(at.key(), n.adjacency()); err != nil {
		return fmt.Errorf("write map neighbours: %w", err)
	}
	f.putShortcut(at.key(), n.adjacency())
	f.known[at.key()] = true
	return nil
}

// neighbour finds one as a program does.
func (f *FIB) neighbour(k neighbourKey) (word uint64, ok bool) {
	if s, _ := f.shortcut(k); s != nil {
		return atomic.LoadUint64(&s.to), true
	}
	return f.neighbours.get(k)
}

func (f *FIB) dropNeighbour(at station) error {
	f.tables.Lock()
	defer f.tables.Unlock()
	return f.forget(at.key())
}

func (f *FIB) forget(k neighbourKey) error {
	f.dropShortcut(k)
	if err := f.neighbours.drop(k); err != nil {
		return err
	}
	delete(f.known, k)
	return nil
}

// forgetNeighbours drops what an earlier process knew of a port.
func (f *FIB) forgetNeighbours(port int) error {
	f.tables.Lock()
	defer f.tables.Unlock()
	for k, ours := range f.known {
		if k.Port == uint32(port) && !ours {
			if err := f.forget(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *FIB) own(a netip.Addr, slice, router uint32) error {
	k := sourceKey{Slice: slice, Address: a.As4()}
	f.tables.Lock()
	defer f.tables.Unlock()
	owners := f.owners[k]
	if owners == nil {
		owners = map[uint32]bool{}
		f.owners[k] = owners
		f.addPossible(k)
	}
	owners[router] = true
	err := f.writeOwners(k)
	if err != nil {
		if delete(owners, router); len(owners) == 0 {
			delete(f.owners, k)
			f.clearPossible(k)
		}
	}
	return err
}

func (f *FIB) disown(a netip.Addr, slice, router uint32) error {
	k := sourceKey{Slice: slice, Address: a.As4()}
	f.tables.Lock()
	defer f.tables.Unlock()
	delete(f.owners[k], router)
	return f.writeOwners(k)
}

func (f *FIB) writeOwners(k sourceKey) error {
	owner := uint32(many)
	switch len(f.owners[k]) {
	case 0:
		delete(f.owners, k)
		if err := f.sources.drop(k); err != nil {
			return err
		}
		f.clearPossible(k)
		return nil
	case 1:
		for owner = range f.owners[k] {
		}
	}
	if err := f.sources.put(k, owner); err != nil {
		return fmt.Errorf("write map sources: %w", err)
	}
	return nil
}
