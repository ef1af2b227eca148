package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// mustParse parses a file in which nothing is wrong.
func mustParse(t testing.TB, file string, data []byte) *Topology {
	t.Helper()
	top, found := Parse(file, data)
	if len(found) > 0 {
		t.Fatalf("parse:\n%s\nof\n%s", found.Error(), data)
	}
	return top
}

// sameTopology compares what topologies say.
var sameTopology = cmp.Options{
	cmpopts.IgnoreFields(Topology{}, "Origin"), cmpopts.IgnoreFields(Source{}, "Where"), cmpopts.EquateEmpty(),
}

func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("find examples: %v, %v", files, err)
	}
	return files
}

func TestExamplesResolve(t *testing.T) {
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			top := mustParse(t, file, data)
			sendSources(top)
			s, found := Resolve(top, nil)
			if len(found) > 0 {
				t.Fatal(found.Error())
			}
			again, found := Resolve(top, s)
			if diff := cmp.Diff(jsonOf(t, s), jsonOf(t, again)); diff != "" || len(found) > 0 {
				t.Errorf("applied twice, it differs: %v\n%s", found, diff)
			}
			written, err := Marshal(top)
			if err != nil {
				t.Fatal(err)
			}
			diff := cmp.Diff(mustParse(t, file, data), mustParse(t, file, written), sameTopology)
			if diff != "" {
				t.Errorf("Parse(Marshal(t)) differs:\n%s\n%s", diff, written)
			}
			checkSchema(t, data)
			checkSchema(t, written)
		})
	}
}

// sendSources fills in the files that a topology names, each with a text of its own.
func sendSources(top *Topology) {
	for _, source := range top.Sources() {
		source.Data = []byte("content of " + source.Path)
		if source.IsArchive() {
			source.Data, source.SHA256 = nil, strings.Repeat("ab", 32)
		}
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var compiledSchema *jsonschema.Schema

// checkSchema fails unless a file fits the published schema.
func checkSchema(t testing.TB, file []byte) {
	t.Helper()
	if compiledSchema == nil {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource(schemaID, document); err != nil {
			t.Fatal(err)
		}
		if compiledSchema, err = compiler.Compile(schemaID); err != nil {
			t.Fatal(err)
		}
	}
	var instance any
	if err := yaml.Unmarshal(file, &instance); err != nil {
		t.Fatalf("read: %v\n%s", err, file)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(jsonOf(t, withTextKeys(instance))))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiledSchema.Validate(instance); err != nil {
		t.Errorf("the schema refuses a right file: %v\n%s", err, file)
	}
}

// withTextKeys makes keys texts, as JSON has them: YAML's may be numbers.
func withTextKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		texts := make(map[string]any, len(v))
		for key, value := range v {
			texts[fmt.Sprint(key)] = withTextKeys(value)
		}
		return texts
	case map[string]any:
		for key, value := range v {
			v[key] = withTextKeys(value)
		}
	case []any:
		for i, value := range v {
			v[i] = withTextKeys(value)
		}
	}
	return v
}

func TestPublishedSchemaIsTheTypes(t *testing.T) {
	const file = "../../schema/pergola.schema.json"
	if *update {
		if err := os.WriteFile(file, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(published), string(Schema())); diff != "" {
		t.Errorf("%s is not what the types say (go test ./model/topology -update):\n%s", file, diff)
	}
}
