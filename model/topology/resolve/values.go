package resolve

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// checkValues reports every value below v that is wrong by itself: units, numbers out of range, words that are not
// among those allowed.
func (r *resolver) checkValues(v reflect.Value, at *diagnostic.Path) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.checkValues(v.Elem(), at)
		}
	case reflect.Struct:
		for _, f := range file.FieldsOf(v.Type()).List {
			if value := v.FieldByIndex(f.Index); !value.IsZero() {
				r.checkField(f, value, at.At(f.Name))
			}
		}
	case reflect.Map:
		if isPlain(v.Type().Elem()) {
			return
		}
		for it := v.MapRange(); it.Next(); {
			r.checkValues(it.Value(), at.At(it.Key().String()))
		}
	case reflect.Slice:
		if isPlain(v.Type().Elem()) {
			return
		}
		for i := range v.Len() {
			r.checkValues(v.Index(i), at.Item(i))
		}
	default:
		if text, ok := v.Interface().(file.Checked); ok { // an element of a map
			if err := text.Check(); err != nil {
				r.Add(at, "", "%v", err)
			}
		}
	}
}

// checked is a value whose text checkValues has looked at. An error has been reported there, with its path, and no
// slice is made.
func checked[T any](value T, _ error) T { return value }

// isPlain reports whether nothing can be wrong with values of a type by themselves.
func isPlain(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 || t.Kind() == reflect.String && !t.Implements(reflect.TypeFor[file.Checked]())
}

func (r *resolver) checkField(f file.Field, v reflect.Value, at *diagnostic.Path) {
	switch {
	case f.Enum != nil && v.Kind() == reflect.String:
		r.checkWord(f, v.String(), at)
	case f.Enum != nil:
		for i := range v.Len() {
			r.checkWord(f, v.Index(i).String(), at.Item(i))
		}
	case v.Type().Implements(reflect.TypeFor[file.Checked]()):
		if err := v.Interface().(file.Checked).Check(); err != nil {
			r.Add(at, "", "%s: %v", f.Name, err)
		}
	case v.CanInt():
		r.checkNumber(f, float64(v.Int()), at)
	case v.CanFloat():
		r.checkNumber(f, v.Float(), at)
	default:
		r.checkValues(v, at)
	}
}

func (r *resolver) checkWord(f file.Field, word string, at *diagnostic.Path) {
	if !slices.Contains(f.Enum, word) {
		r.Add(at, diagnostic.SuggestOr(word, f.Enum), "unknown %s %q", f.Name, word)
	}
}

func (r *resolver) checkNumber(f file.Field, number float64, at *diagnostic.Path) {
	if (f.Low != 0 || f.High != 0) && (number < f.Low || number > f.High) {
		text := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
		r.Add(at, "", "%s %s is out of range: %s to %s", f.Name, text(number), text(f.Low), text(f.High))
	}
}
