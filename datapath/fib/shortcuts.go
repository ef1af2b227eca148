package fib

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// maxShortcuts is MAX_SHORTCUTS in bpf/fib.h.
const maxShortcuts = 65536

// A shortcut leads to an IPv4 neighbour (struct shortcut in bpf/fib.h). The neighbours are all in the table, too: a
// shortcut is written after it and taken away before it.
type shortcut struct {
	to        uint64 // union adjacency
	neighbour uint64 // its port and address; 0: none
}

// A departure is a neighbour that had a place until some time. Programs may still be looking at it: before they have
// been waited for, the place is no other's.
type departure struct {
	neighbour uint64
	waited    int
}

// place is where a neighbour's shortcut may be. IPv6 neighbours have none.
func (k neighbourKey) place() (place uint32, neighbour uint64, ok bool) {
	mapped := []byte{10: 0xff, 11: 0xff}
	if !bytes.HasPrefix(k.Address[:], mapped) {
		return 0, 0, false
	}
	b := append(binary.NativeEndian.AppendUint32(nil, k.Port), k.Address[len(mapped):]...)
	neighbour = binary.NativeEndian.Uint64(b)
	return uint32(neighbour * 0x9e3779b97f4a7c15 >> 48), neighbour, true
}

// shortcut finds a neighbour's; nil if it has none.
func (f *FIB) shortcut(k neighbourKey) (s *shortcut, place uint32) {
	place, neighbour, ok := k.place()
	if s := &f.shortcuts[place]; ok && atomic.LoadUint64(&s.neighbour) == neighbour {
		return s, place
	}
	return nil, 0
}

// putShortcut sets a neighbour's if its place is free. f.tables is held.
func (f *FIB) putShortcut(k neighbourKey, word uint64) {
	place, neighbour, ok := k.place()
	s := &f.shortcuts[place]
	if !ok || s.neighbour != 0 && s.neighbour != neighbour {
		return
	}
	if was, left := f.left[place]; left && was.neighbour != neighbour && was.waited == f.waited() {
		return
	}
	delete(f.left, place)
	f.store64(&s.to, word)
	f.store64(&s.neighbour, neighbour)
}

func (f *FIB) dropShortcut(k neighbourKey) {
	if s, place := f.shortcut(k); s != nil {
		f.clearShortcut(s, place)
	}
}

// clearShortcut leaves no address behind: on some processors a program may see the next neighbour before its address.
func (f *FIB) clearShortcut(s *shortcut, place uint32) {
	was := s.neighbour
	f.store64(&s.neighbour, 0)
	f.store64(&s.to, adjacency(nexthopUnresolved, [6]byte{}))
	f.left[place] = departure{neighbour: was, waited: f.waited()}
}

// adoptShortcuts makes those of an earlier process, which may have died between two stores, say what the table says.
func (f *FIB) adoptShortcuts(neighbours map[neighbourKey]uint64) {
	f.left = map[uint32]departure{}
	kept := map[uint32]bool{}
	for k, word := range neighbours {
		if s, place := f.shortcut(k); s != nil {
			kept[place] = true
			// what kind it is, programs change
			if _, have := parseAdjacency(atomic.LoadUint64(&s.to)); have != macOf(word) {
				f.store64(&s.to, word)
			}
		}
	}
	for i := range f.shortcuts {
		if s := &f.shortcuts[i]; s.neighbour != 0 && !kept[uint32(i)] {
			f.clearShortcut(s, uint32(i))
		}
	}
}

func macOf(word uint64) [6]byte {
	_, mac := parseAdjacency(word)
	return mac
}
