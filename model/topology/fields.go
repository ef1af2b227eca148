package topology

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// field is one key of a struct of the topology.
type field struct {
	name     string
	index    []int
	typ      reflect.Type
	doc      string
	enum     []string
	required bool
	// Bounds of a number; low and high are both 0 where there are none. The number 0 itself means "not written".
	low, high float64
}

// fields are the keys of a struct, embedded structs included, in order.
type fields struct {
	list   []field
	names  []string
	byName map[string]field
}

var fieldCache sync.Map // reflect.Type -> *fields

// fieldsOf reads the tags of a struct.
func fieldsOf(t reflect.Type) *fields {
	if known, ok := fieldCache.Load(t); ok {
		return known.(*fields)
	}
	fs := &fields{byName: map[string]field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || name == "" {
			continue
		}
		entry := field{name: name, index: f.Index, typ: f.Type, doc: f.Tag.Get("doc"), required: options == ""}
		if enum := f.Tag.Get("enum"); enum != "" {
			entry.enum = strings.Split(enum, ",")
		}
		entry.low, _ = strconv.ParseFloat(f.Tag.Get("minimum"), 64)
		entry.high, _ = strconv.ParseFloat(f.Tag.Get("maximum"), 64)
		fs.list = append(fs.list, entry)
		fs.names = append(fs.names, name)
		fs.byName[name] = entry
	}
	fieldCache.Store(t, fs)
	return fs
}
