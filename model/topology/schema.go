package topology

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// schemaID is where the published schema can be had.
const schemaID = "https://raw.githubusercontent.com/pergola-net/pergola/main/schema/pergola.schema.json"

// Schema is the JSON Schema of topology files (draft 7, which editors understand), made from the types. It is
// published as schema/pergola.schema.json.
func Schema() []byte {
	g := generator{definitions: map[string]any{}}
	root := g.structure(reflect.TypeFor[Topology]())
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["$id"] = schemaID
	root["title"] = "Pergola topology"
	root["patternProperties"] = map[string]any{"^x-": map[string]any{}}
	root["required"] = []string{"nodes"}
	root["definitions"] = g.definitions
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return append(out, '\n')
}

type generator struct {
	definitions map[string]any
}

type object7 = map[string]any

// structure describes a struct in its long form.
func (g *generator) structure(t reflect.Type) object7 {
	properties := object7{}
	for _, f := range file.FieldsOf(t).List {
		properties[f.Name] = g.property(f)
		for _, short := range slices.Sorted(maps.Keys(file.Spellings)) {
			if file.Spellings[short] == f.Name {
				properties[short] = g.property(f)
			}
		}
	}
	return object7{"type": "object", "properties": properties, "additionalProperties": false}
}

func (g *generator) property(f file.Field) object7 {
	p := maps.Clone(g.value(f.Type))
	if f.Enum != nil {
		words := object7{"enum": f.Enum}
		p = words
		if f.Type.Kind() == reflect.Slice {
			p = object7{"anyOf": []any{words, object7{"type": "array", "items": words}}}
		}
	}
	if f.High != 0 {
		p["minimum"], p["maximum"] = f.Low, f.High
	}
	if _, isRef := p["$ref"]; isRef { // draft 7 ignores what stands beside a reference
		p = object7{"allOf": []any{p}}
	}
	p["description"] = f.Doc
	return p
}

// A text in the file may look like a number or a truth value.
var anyText = object7{"type": []string{"string", "number", "boolean"}}

// value describes a type with its short forms.
func (g *generator) value(t reflect.Type) object7 {
	switch t {
	case reflect.TypeFor[Rate]():
		return object7{"type": []string{"string", "integer"},
			"pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtT]?([bB]it|[bB]its|bps|b|[bB]it/s|b/s)?$`}
	case reflect.TypeFor[FrameRate]():
		return object7{"type": []string{"string", "integer"},
			"pattern": `^(off|[0-9]+(\.[0-9]+)? ?[kKmM]?([pP][pP][sS]|[pP]/[sS]|/[sS])?)$`}
	case reflect.TypeFor[Duration]():
		return object7{"type": []string{"string", "integer"}, "pattern": `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`}
	case reflect.TypeFor[Percent]():
		return object7{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]*)? ?%?$`}
	case reflect.TypeFor[Bytes]():
		return object7{"type": []string{"string", "integer"}, "pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtTpP]?[iI]?[bB]?$`}
	case reflect.TypeFor[Strings](), reflect.TypeFor[Command]():
		return object7{"type": []string{"array", "string", "number", "boolean"}, "items": anyText}
	case reflect.TypeFor[map[string]*Source]():
		return object7{"type": []string{"string", "array", "object"}, "items": object7{"type": "string"},
			"additionalProperties": object7{"type": "string"}}
	case reflect.TypeFor[[]Route]():
		return object7{"anyOf": []any{object7{"type": "string"}, object7{"type": "array", "items": g.value(t.Elem())}}}
	case reflect.TypeFor[Source]():
		return object7{"type": "string"}
	case reflect.TypeFor[slice.Position]():
		return object7{"anyOf": []any{g.structure(t),
			object7{"type": "array", "items": object7{"type": "number"}, "minItems": 2, "maxItems": 2}}}
	case reflect.TypeFor[map[string]Node]():
		return object7{"anyOf": []any{
			object7{"type": "object", "additionalProperties": g.value(t.Elem())},
			object7{"type": "array", "items": anyText},
		}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem())
	case reflect.Struct:
		return g.reference(t)
	case reflect.Map:
		return object7{"type": "object", "additionalProperties": g.value(t.Elem())}
	case reflect.Slice:
		return object7{"type": "array", "items": g.value(t.Elem())}
	case reflect.Bool:
		return object7{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return object7{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object7{"type": "number"}
	default:
		return maps.Clone(anyText)
	}
}

// reference describes a struct once and points to it.
func (g *generator) reference(t reflect.Type) object7 {
	name := t.Name()
	ref := object7{"$ref": "#/definitions/" + name}
	if _, known := g.definitions[name]; known {
		return ref
	}
	g.definitions[name] = nil // it may hold itself
	long := g.structure(t)
	var forms []any
	switch t {
	case reflect.TypeFor[Node]():
		long["type"] = []string{"object", "null"}
	case reflect.TypeFor[Group]():
		long["type"] = []string{"object", "null"}
	case reflect.TypeFor[Link]():
		forms = []any{object7{"type": "array", "items": object7{"type": "string"}, "minItems": 2}}
	case reflect.TypeFor[File](), reflect.TypeFor[Route]():
		forms = []any{object7{"type": "string"}}
	}
	if forms != nil {
		long = object7{"anyOf": slices.Concat(forms, []any{long})}
	}
	g.definitions[name] = long
	return ref
}
