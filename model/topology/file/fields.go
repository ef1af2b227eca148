package file

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Field is one key of a struct of the topology.
type Field struct {
	Name     string
	Index    []int
	Type     reflect.Type
	Doc      string
	Enum     []string
	required bool
	// Bounds of a number; low and high are both 0 where there are none. The number 0 itself means "not written".
	Low, High float64
}

// Fields are the keys of a struct, embedded structs included, in order.
type Fields struct {
	List   []Field
	Names  []string
	ByName map[string]Field
}

var fieldCache sync.Map // reflect.Type -> *fields

// FieldsOf reads the tags of a struct.
func FieldsOf(t reflect.Type) *Fields {
	if known, ok := fieldCache.Load(t); ok {
		return known.(*Fields)
	}
	fs := &Fields{ByName: map[string]Field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || name == "" {
			continue
		}
		entry := Field{Name: name, Index: f.Index, Type: f.Type, Doc: f.Tag.Get("doc"), required: options == ""}
		if enum := f.Tag.Get("enum"); enum != "" {
			entry.Enum = strings.Split(enum, ",")
		}
		entry.Low, _ = strconv.ParseFloat(f.Tag.Get("minimum"), 64)
		entry.High, _ = strconv.ParseFloat(f.Tag.Get("maximum"), 64)
		fs.List = append(fs.List, entry)
		fs.Names = append(fs.Names, name)
		fs.ByName[name] = entry
	}
	fieldCache.Store(t, fs)
	return fs
}
