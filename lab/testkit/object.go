package testkit

import (
	"io"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// LoadObject loads a test's own BPF object, until the test ends. Its maps are pinned nowhere.
func LoadObject(t testing.TB, spec *ebpf.CollectionSpec, objects io.Closer) {
	t.Helper()
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	if err := spec.LoadAndAssign(objects, nil); err != nil {
		t.Fatalf("load the test's object: %+v", err)
	}
	t.Cleanup(func() {
		if err := objects.Close(); err != nil {
			t.Error(err)
		}
	})
}

// OffsetInC is where a struct of an object has a member, by "struct.member". ok is false where it has none.
func OffsetInC(t testing.TB, spec *ebpf.CollectionSpec, name string) (offset uintptr, ok bool) {
	t.Helper()
	of, member, _ := strings.Cut(name, ".")
	var c *btf.Struct
	if err := spec.Types.TypeByName(of, &c); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members {
		if m.Name == member {
			return uintptr(m.Offset.Bytes()), true
		}
	}
	return 0, false
}
