package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// VarsFile is a file of values for a template.
type VarsFile struct {
	Name string
	Data []byte
}

const (
	templateEnding = ".gotmpl"
	templateParts  = "clab_templates" // the directory of templates that others include
	maxFilled      = 4 << 20          // bytes of a template that is filled in
	maxSequence    = 100_000          // of seq
	noValue        = "<no value>"     // what text/template writes for a value that is not there
	templateMark   = "{{"
)

// fillIn executes a file as a Go template, as containerlab does with every file.
func (c *clab) fillIn(data []byte) []byte {
	if !bytes.Contains(data, []byte(templateMark)) {
		return data
	}
	c.filled = true
	t, err := template.New(filepath.Base(c.report.file)).Funcs(templateFuncs).Parse(string(data))
	if err == nil && c.opt.Dir != nil {
		if parts, _ := fs.Glob(c.opt.Dir, templateParts+"/*"+templateEnding); len(parts) > 0 {
			t, err = t.ParseFS(c.opt.Dir, parts...)
		}
	}
	var out limitedBuffer
	if err == nil {
		err = t.Execute(&out, c.variables())
	}
	if err != nil {
		c.fail(position{}, "", "fill in the template: %s", strings.TrimPrefix(err.Error(), "template: "))
		return nil
	}
	for i, line := range bytes.Split(out.Bytes(), []byte("\n")) {
		if bytes.Contains(line, []byte(noValue)) {
			c.fail(position{Line: i + 1, Column: 1}, "give it in a file: --vars FILE",
				"the template uses a variable that has no value: %s", bytes.TrimSpace(line))
			return nil
		}
	}
	return out.Bytes()
}

// limitedBuffer refuses to grow beyond maxFilled.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxFilled {
		return 0, fmt.Errorf("it gives more than %d MiB", maxFilled>>20)
	}
	return b.Buffer.Write(p)
}

// variables are the values of the options' files, or else of those beside the topology: FILE_vars.yaml and
// FILE_vars.*.yaml, in alphabetical order. A later file overrides an earlier one, key by key.
func (c *clab) variables() any {
	files := c.opt.Vars
	if files == nil && c.opt.Dir != nil {
		base := filepath.Base(c.report.file)
		prefix := strings.TrimSuffix(base, filepath.Ext(base)) + "_vars."
		entries, _ := fs.ReadDir(c.opt.Dir, ".")
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) ||
				!contains([]string{".yaml", ".yml", ".json"}, path.Ext(e.Name())) {
				continue
			}
			if data, err := fs.ReadFile(c.opt.Dir, e.Name()); err == nil {
				files = append(files, VarsFile{e.Name(), data})
			}
		}
	}
	if len(files) == 0 {
		return nil
	}
	all := map[string]any{}
	for _, f := range files {
		r := &report{file: f.Name}
		if root := readYAML(r, f.Data); r.want(root, yamltree.Map, "a file of variables") {
			values, _ := plain(root).(map[string]any)
			mergeValues(all, values)
		}
		c.found = append(c.found, r.found...)
		c.wrong = c.wrong || r.wrong
	}
	return all
}

func mergeValues(into, from map[string]any) {
	for key, v := range from {
		inner, isMap := v.(map[string]any)
		known, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			mergeValues(known, inner)
			continue
		}
		into[key] = v
	}
}

// plain is a tree as values of Go.
func plain(v *yamltree.Node) any {
	switch v.Kind {
	case yamltree.Map:
		m := make(map[string]any, len(v.Entries))
		for _, e := range v.Entries {
			m[e.Key] = plain(e.Value)
		}
		return m
	case yamltree.List:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			list[i] = plain(item)
		}
		return list
	case yamltree.Scalar:
		if b, ok := v.Bool(); ok {
			return b
		}
		if n, err := strconv.ParseInt(v.Text, 10, 64); err == nil {
			return n
		}
		return v.Text
	default:
		return nil
	}
}

// templateFuncs are those that containerlab adds to Go's own.
var templateFuncs = template.FuncMap{
	"add":      arithmetic(func(a, b int64) (int64, error) { return a + b, nil }),
	"subtract": arithmetic(func(a, b int64) (int64, error) { return a - b, nil }),
	"mul":      arithmetic(func(a, b int64) (int64, error) { return a * b, nil }),
	"div":      arithmetic(quotient), "idiv": arithmetic(quotient),
	"rem": arithmetic(func(a, b int64) (int64, error) {
		q, err := quotient(a, b)
		return a - q*b, err
	}),
	"seq":     sequence,
	"slice":   func(items ...any) []any { return items },
	"ToJSON":  func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
	"strings": func() stringFuncs { return stringFuncs{} },
	"conv":    func() convFuncs { return convFuncs{} },
}

func quotient(a, b int64) (int64, error) {
	if b == 0 {
		return 0, errors.New("division by zero")
	}
	return a / b, nil
}

func arithmetic(do func(a, b int64) (int64, error)) func(a, b any) (int64, error) {
	return func(a, b any) (int64, error) {
		x, err := integer(a)
		if err != nil {
			return 0, err
		}
		y, err := integer(b)
		if err != nil {
			return 0, err
		}
		return do(x, y)
	}
}

func integer(v any) (int64, error) {
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%v is not a whole number", v)
	}
	return n, nil
}

// sequence gives the numbers 1 to end, start to end, or those with a step.
func sequence(args ...any) ([]int64, error) {
	numbers := []int64{1, 0, 1}
	if len(args) == 1 {
		args = []any{1, args[0]}
	}
	if len(args) == 0 || len(args) > len(numbers) {
		return nil, fmt.Errorf("seq has 1 to 3 arguments, not %d", len(args))
	}
	for i, a := range args {
		n, err := integer(a)
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	start, end, step := numbers[0], numbers[1], max(numbers[2], -numbers[2])
	if step == 0 {
		return nil, errors.New("the step of seq is 0")
	}
	if start > end {
		step = -step
	}
	if (end-start)/step >= maxSequence {
		return nil, fmt.Errorf("seq gives more than %d numbers", maxSequence)
	}
	var list []int64
	for n := start; step > 0 && n <= end || step < 0 && n >= end; n += step {
		list = append(list, n)
	}
	return list, nil
}

type stringFuncs struct{}

// Split gives the parts of a text between separators.
func (stringFuncs) Split(separator string, s any) []string {
	return strings.Split(fmt.Sprint(s), separator)
}

// ReplaceAll replaces a part of a text wherever it stands.
func (stringFuncs) ReplaceAll(old, with string, s any) string {
	return strings.ReplaceAll(fmt.Sprint(s), old, with)
}

type convFuncs struct{}

// ToString gives a value as text.
func (convFuncs) ToString(v any) string { return fmt.Sprint(v) }

// Join gives the elements of a list as one text.
func (convFuncs) Join(list any, separator string) (string, error) {
	var texts []string
	switch items := list.(type) {
	case []string:
		texts = items
	case []any:
		for _, item := range items {
			texts = append(texts, fmt.Sprint(item))
		}
	case map[string]any:
		texts = slices.Sorted(maps.Keys(items))
	default:
		return "", fmt.Errorf("%v is not a list", list)
	}
	return strings.Join(texts, separator), nil
}
