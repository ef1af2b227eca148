package topology

import (
	"reflect"
	"slices"
	"strconv"
)

// checked is a text whose form can be wrong.
type checked interface{ check() error }

func (r Rate) check() error      { _, err := r.Bits(); return err }
func (r FrameRate) check() error { _, err := r.Frames(); return err }
func (d Duration) check() error  { _, err := d.Duration(); return err }
func (p Percent) check() error   { _, err := p.Value(); return err }
func (b Bytes) check() error     { _, err := b.Count(); return err }

// checkValues reports every value below v that is wrong by itself: units, numbers out of range, words that are not
// among those allowed.
func (r *report) checkValues(v reflect.Value, at *place) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.checkValues(v.Elem(), at)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()).list {
			if value := v.FieldByIndex(f.index); !value.IsZero() {
				r.checkField(f, value, at.at(f.name))
			}
		}
	case reflect.Map:
		if isPlain(v.Type().Elem()) {
			return
		}
		for it := v.MapRange(); it.Next(); {
			r.checkValues(it.Value(), at.at(it.Key().String()))
		}
	case reflect.Slice:
		if isPlain(v.Type().Elem()) {
			return
		}
		for i := range v.Len() {
			r.checkValues(v.Index(i), at.item(i))
		}
	default:
	}
}

// isPlain reports whether nothing can be wrong with values of a type by themselves.
func isPlain(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 || t.Kind() == reflect.String && !t.Implements(reflect.TypeFor[checked]())
}

func (r *report) checkField(f field, v reflect.Value, at *place) {
	switch {
	case f.enum != nil && v.Kind() == reflect.String:
		r.checkWord(f, v.String(), at)
	case f.enum != nil:
		for i := range v.Len() {
			r.checkWord(f, v.Index(i).String(), at.item(i))
		}
	case v.Type().Implements(reflect.TypeFor[checked]()):
		if err := v.Interface().(checked).check(); err != nil {
			r.add(at, "", "%s: %v", f.name, err)
		}
	case v.CanInt():
		r.checkNumber(f, float64(v.Int()), at)
	case v.CanFloat():
		r.checkNumber(f, v.Float(), at)
	default:
		r.checkValues(v, at)
	}
}

func (r *report) checkWord(f field, word string, at *place) {
	if !slices.Contains(f.enum, word) {
		r.add(at, suggestOr(word, f.enum), "unknown %s %q", f.name, word)
	}
}

func (r *report) checkNumber(f field, number float64, at *place) {
	if (f.low != 0 || f.high != 0) && (number < f.low || number > f.high) {
		text := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
		r.add(at, "", "%s %s is out of range: %s to %s", f.name, text(number), text(f.low), text(f.high))
	}
}
