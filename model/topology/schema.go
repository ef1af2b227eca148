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

type schemaObject = map[string]any

// structure describes a struct in its long form.
func (g *generator) structure(t reflect.Type) schemaObject {
	properties := schemaObject{}
	for _, f := range file.FieldsOf(t).List {
		properties[f.Name] = g.property(f)
		for _, short := range slices.Sorted(maps.Keys(file.Spellings)) {
			if file.Spellings[short] == f.Name {
				properties[short] = g.property(f)
			}
		}
	}
	return schemaObject{"type": "object", "properties": properties, "additionalProperties": false}
}

func (g *generator) property(f file.Field) schemaObject {
	p := maps.Clone(g.value(f.Type))
	if f.Enum != nil {
		words := schemaObject{"enum": f.Enum}
		p = words
		if f.Type.Kind() == reflect.Slice {
			p = schemaObject{"anyOf": []any{words, schemaObject{"type": "array", "items": words}}}
		}
	}
	if f.High != 0 {
		p["minimum"], p["maximum"] = f.Low, f.High
	}
	if _, isRef := p["$ref"]; isRef { // draft 7 ignores what stands beside a reference
		p = schemaObject{"allOf": []any{p}}
	}
	p["description"] = f.Doc
	return p
}

// A text in the file may look like a number or a truth value.
var anyText = schemaObject{"type": []string{"string", "number", "boolean"}}

// value describes a type with its short forms.
func (g *generator) value(t reflect.Type) schemaObject {
	switch t {
	case reflect.TypeFor[Rate](), reflect.TypeFor[file.PolicedRate]():
		return schemaObject{"type": []string{"string", "integer"},
			"pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtT]?([bB]it|[bB]its|bps|b|[bB]it/s|b/s)?$`}
	case reflect.TypeFor[file.CodePoint](), reflect.TypeFor[file.Protocol](), reflect.TypeFor[file.PortsRange]():
		return schemaObject{"type": []string{"string", "integer"}}
	case reflect.TypeFor[FrameRate]():
		return schemaObject{"type": []string{"string", "integer"},
			"pattern": `^(off|[0-9]+(\.[0-9]+)? ?[kKmM]?([pP][pP][sS]|[pP]/[sS]|/[sS])?)$`}
	case reflect.TypeFor[Duration]():
		return schemaObject{"type": []string{"string", "integer"},
			"pattern": `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`}
	case reflect.TypeFor[Percent]():
		return schemaObject{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]*)? ?%?$`}
	case reflect.TypeFor[Bytes](), reflect.TypeFor[file.Burst]():
		return schemaObject{"type": []string{"string", "integer"},
			"pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtTpP]?[iI]?[bB]?$`}
	case reflect.TypeFor[file.QueueLength]():
		return schemaObject{"type": []string{"string", "integer"},
			"pattern": `^[0-9]+(\.[0-9]+)? ?([kKmMgG][iI]?)?[bB]?$`}
	case reflect.TypeFor[Strings](), reflect.TypeFor[Command]():
		return schemaObject{"type": []string{"array", "string", "number", "boolean"}, "items": anyText}
	case reflect.TypeFor[map[string]*Source]():
		return schemaObject{"type": []string{"string", "array", "object"},
			"items": schemaObject{"type": "string"}, "additionalProperties": schemaObject{"type": "string"}}
	case reflect.TypeFor[[]Route](), reflect.TypeFor[[]file.Filter](), reflect.TypeFor[[]file.Port]():
		return schemaObject{"anyOf": []any{schemaObject{"type": "string"},
			schemaObject{"type": "array", "items": g.value(t.Elem())}}}
	case reflect.TypeFor[Source]():
		return schemaObject{"type": "string"}
	case reflect.TypeFor[slice.Position]():
		return schemaObject{"anyOf": []any{g.structure(t),
			schemaObject{"type": "array", "items": schemaObject{"type": "number"}, "minItems": 2,
				"maxItems": 2}}}
	case reflect.TypeFor[map[string]Node]():
		return schemaObject{"anyOf": []any{
			schemaObject{"type": "object", "additionalProperties": g.value(t.Elem())},
			schemaObject{"type": "array", "items": anyText},
		}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem())
	case reflect.Struct:
		return g.reference(t)
	case reflect.Map:
		return schemaObject{"type": "object", "additionalProperties": g.value(t.Elem())}
	case reflect.Slice:
		return schemaObject{"type": "array", "items": g.value(t.Elem())}
	case reflect.Bool:
		return schemaObject{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return schemaObject{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return schemaObject{"type": "number"}
	default:
		return maps.Clone(anyText)
	}
}

// reference describes a struct once and points to it.
func (g *generator) reference(t reflect.Type) schemaObject {
	name := t.Name()
	ref := schemaObject{"$ref": "#/definitions/" + name}
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
		forms = []any{schemaObject{"type": "array", "items": schemaObject{"type": "string"}, "minItems": 2}}
	case reflect.TypeFor[File](), reflect.TypeFor[Route](), reflect.TypeFor[file.Filter](),
		reflect.TypeFor[file.Port]():
		forms = []any{schemaObject{"type": "string"}}
	case reflect.TypeFor[file.Outside]():
		forms = []any{schemaObject{"type": "boolean"}}
	case reflect.TypeFor[file.Policer]():
		forms = []any{g.value(reflect.TypeFor[file.PolicedRate]())}
	}
	if forms != nil {
		long = schemaObject{"anyOf": slices.Concat(forms, []any{long})}
	}
	g.definitions[name] = long
	return ref
}
