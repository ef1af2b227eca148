package rsvp

import (
	"net/netip"
	"reflect"
)

// A message of 64 KiB can be half a megabyte of state, as each step of a route and each record has all fields that any
// of them can have. So what neighbours can make a router store is bounded in bytes of memory, as well as in LSPs.

// size is the memory behind what a Path says, in bytes: it has no bound of its own.
func (p path) size() int { return behind(reflect.ValueOf(p)) }

// size is the memory behind what a Resv says.
func (v *resv) size() int {
	if v == nil {
		return 0
	}
	return behind(reflect.ValueOf(v.record))
}

var addrType = reflect.TypeFor[netip.Addr]()

// behind is the memory that a value refers to. Each array, string and pointer counts once more for each reference.
func behind(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int(v.Elem().Type().Size()) + behind(v.Elem())
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		if scalar(v.Type().Elem()) {
			return n
		}
		for i := range v.Len() {
			n += behind(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == addrType { // what it refers to is shared
			return 0
		}
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
	default:
	}
	return n
}

// scalar tells whether values of a type refer to nothing.
func scalar(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 }

// room tells whether what an LSP is to store fits, in the place of what it has.
func (r *Router) room(s *lsp, size int) bool { return r.stored-s.stored+size <= r.config.MaxBytes }

// size is what an LSP stores with a reservation. What its owner asks for where it begins does not count.
func (s *lsp) size(v *resv) int {
	if s.in == nil {
		return v.size()
	}
	return s.path.size() + v.size()
}

// weigh notes what an LSP stores, after it has changed.
func (r *Router) weigh(s *lsp) { r.store(s, s.size(s.resv)) }

func (r *Router) store(s *lsp, size int) {
	r.stored += size - s.stored
	s.stored = size
}
