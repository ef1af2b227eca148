package resolve

import (
	"reflect"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// A key that is missing in the lists is read, and has no effect.
func TestANodeWithoutAProcessRefusesAllKeysOfProcesses(t *testing.T) {
	has := map[slice.Kind][]string{
		slice.Switch: {"kind", "labels"},
		slice.Uplink: {"kind", "labels", "host"},
	}
	for kind, its := range has {
		foreign := foreignKeys(kind)
		for _, key := range file.FieldsOf(reflect.TypeFor[file.Attributes]()).Names {
			if refused := slices.Contains(foreign, key); refused == slices.Contains(its, key) {
				t.Errorf("%s of a node of kind %s is refused: %t", key, kind, refused)
			}
		}
	}
}

// The lists have no key that is not one.
func TestKeysOfKindsAreKeysOfNodes(t *testing.T) {
	keys := file.FieldsOf(reflect.TypeFor[file.Node]()).Names
	for _, kind := range []slice.Kind{slice.Router, slice.Host, slice.Program, slice.Switch, slice.Uplink} {
		for _, key := range foreignKeys(kind) {
			if !slices.Contains(keys, key) {
				t.Errorf("%q of a node of kind %s is no key", key, kind)
			}
		}
	}
}
