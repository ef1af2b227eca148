package encode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/decode"
	"github.com/pergola-net/pergola/model/topology/file"
)

// Marshal writes a topology as a person would: short forms, one line for what is short, sections apart. Parse reads
// the same topology back, without the data of its sources.
func Marshal(t *file.Topology) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range file.FieldsOf(reflect.TypeFor[file.Topology]()).List {
		v := reflect.ValueOf(t).Elem().FieldByIndex(f.Index)
		if isEmpty(v) {
			continue
		}
		tree, err := plain(v)
		if err != nil {
			return nil, fmt.Errorf("write topology: %s: %w", f.Name, err)
		}
		if _, scalar := tree.(string); !scalar && out.Len() > 0 {
			out.WriteByte('\n')
		}
		emitEntry(&out, pair{f.Name, tree}, 0)
	}
	return out.Bytes(), nil
}

// The tree that is written: a string is a scalar in YAML's spelling, a block is a text of several lines.
type (
	object []pair
	pair   struct {
		key   string
		value any
	}
	list  []any
	block string
)

// plain turns a value of the topology into its shortest form.
func plain(v reflect.Value) (any, error) {
	if short, ok := abbreviate(v); ok {
		return short, nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return plain(v.Elem())
	case reflect.Struct:
		return plainStruct(v)
	case reflect.Map:
		return plainMap(v)
	case reflect.Slice:
		l := make(list, v.Len())
		for i := range l {
			tree, err := plain(v.Index(i))
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			l[i] = tree
		}
		return l, nil
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return nil, fmt.Errorf("%q is not UTF-8", v.String())
		}
		if isBlock(v.String()) {
			return block(v.String()), nil
		}
		return scalar(v.String()), nil
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), nil
	default:
		return fmt.Sprint(v.Interface()), nil
	}
}

func plainStruct(v reflect.Value) (any, error) {
	o := object{}
	for _, f := range file.FieldsOf(v.Type()).List {
		value := v.FieldByIndex(f.Index)
		if isEmpty(value) {
			continue
		}
		tree, err := plain(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		o = append(o, pair{f.Name, tree})
	}
	return o, nil
}

func plainMap(v reflect.Value) (any, error) {
	o := object{}
	for _, key := range sortedMapKeys(v) {
		tree, err := plain(v.MapIndex(reflect.ValueOf(key)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		o = append(o, pair{scalar(key), tree})
	}
	return o, nil
}

// isEmpty reports whether nothing is written where a value stands.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}

func sortedMapKeys(v reflect.Value) []string {
	keys := map[string]bool{}
	for _, key := range v.MapKeys() {
		keys[key.String()] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// abbreviate is the reverse of shorthands.
func abbreviate(v reflect.Value) (any, bool) {
	switch value := v.Interface().(type) {
	case file.Strings:
		if len(value) == 1 && utf8.ValidString(value[0]) {
			return scalar(value[0]), true
		}
	case file.Command:
		if len(value) == 3 && value[0] == decode.Shell && value[1] == "-c" && utf8.ValidString(value[2]) {
			return scalar(value[2]), true
		}
	case file.Node:
		if reflect.ValueOf(value).IsZero() {
			return "", true
		}
	case file.Link:
		if bare := (file.Link{Ends: value.Ends}); reflect.DeepEqual(value, bare) {
			tree, err := plain(reflect.ValueOf(value.Ends))
			return tree, err == nil
		}
	case file.Source:
		return scalar(value.Path), true
	case file.File:
		if value.Source != nil && value.Content == "" && value.Mode == "" {
			return scalar(value.Source.Path), true
		}
	case map[string]*file.Source:
		return abbreviateConfig(value)
	case file.Policer:
		if value.Burst == "" && utf8.ValidString(string(value.Rate)) {
			return scalar(string(value.Rate)), true
		}
	case file.Route:
		return abbreviateRoute(value)
	case file.Filter:
		return abbreviateFilter(value)
	case file.Port:
		return scalar(value.Port), value.Port != "" && reflect.DeepEqual(value, file.Port{Port: value.Port})
	case file.Outside:
		if value.On != nil && value.Rate == "" && value.Reserve == "" {
			return strconv.FormatBool(*value.On), true
		}
	case slice.Position:
		return list{strconv.FormatFloat(value.Latitude, 'f', -1, 64),
			strconv.FormatFloat(value.Longitude, 'f', -1, 64)}, true
	}
	return nil, false
}

func abbreviateConfig(files map[string]*file.Source) (any, bool) {
	paths := list{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == nil || files[name].Path == "" || path.Base(files[name].Path) != name {
			return nil, false
		}
		paths = append(paths, scalar(files[name].Path))
	}
	if len(paths) == 1 {
		return paths[0], true
	}
	return paths, len(paths) > 0
}

func abbreviateFilter(f file.Filter) (any, bool) {
	switch {
	case f.Source == nil && strings.Contains(f.Filter, file.Arrow) && utf8.ValidString(f.Filter):
		return scalar(f.Filter), true
	case f.Source != nil && f.Filter == "" && !strings.Contains(f.Source.Path, file.Arrow):
		return scalar(f.Source.Path), true
	}
	return nil, false
}

var word = regexp.MustCompile(`^[^\s]+$`)

func abbreviateRoute(r file.Route) (any, bool) {
	text := r.To
	if !word.MatchString(r.To) || r.To == "blackhole" {
		return nil, false
	}
	if r.Blackhole {
		text = "blackhole " + text
	}
	for _, part := range [][2]string{{"via", r.Via}, {"dev", r.Interface}} {
		if part[1] == "" {
			continue
		}
		if !word.MatchString(part[1]) {
			return nil, false
		}
		text += " " + part[0] + " " + part[1]
	}
	return scalar(text), true
}

// bare is a text that YAML reads as itself, also between brackets.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./+$(][A-Za-z0-9_./+$()=%@~^;!*-]*([ :][A-Za-z0-9_./+$()=%@~^;!*-]+)*$`)

// reservedWords are texts that YAML, this version or an older one, reads as something else.
var reservedWords = regexp.MustCompile(
	`(?i)^(null|true|false|yes|no|on|off|y|n|\.nan|[+-]?\.inf|0[xob].*|---|\.\.\.)$|^<<`)

// scalar writes a text, in quotes where YAML needs them.
func scalar(text string) string {
	if bare.MatchString(text) && !reservedWords.MatchString(text) {
		return text
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out) // every JSON string is a YAML string
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return strconv.Quote(text)
	}
	var escaped strings.Builder
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		switch {
		case r < 0x7f || strconv.IsPrint(r):
			escaped.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		default:
			fmt.Fprintf(&escaped, `\U%08x`, r)
		}
	}
	return escaped.String()
}

// isBlock reports whether a text of several lines can stand as it is.
func isBlock(text string) bool {
	if !strings.Contains(text, "\n") || strings.HasSuffix(text, "\n\n") || strings.TrimSpace(text) == "" {
		return false
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if i == 0 && (line == "" || line[0] == ' ') || line != strings.TrimRight(line, " \t") {
			return false
		}
		if strings.ContainsFunc(line, func(r rune) bool {
			return r < ' ' || r == 0x7f || r > 0x7f && !strconv.IsPrint(r)
		}) {
			return false
		}
	}
	return true
}
