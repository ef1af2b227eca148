package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestColonsInsideOfWords(t *testing.T) {
	top := mustParse(t, "t.yaml", []byte(`nodes:
  a: {image: alpine:3.20, gateway: fd00::1, exec: [a:b:c, "q:r", 1:2], env: {k: v:w}}
  b: {interfaces: {eth1: {addresses: [fd00::1/64, 10.0.0.1/24]}}, loopbacks: [::2, fd01::], binds: [/a:/b]}
links:
  - {ends: [a:eth1, b], from: {a:eth1: {delay: 1ms}, b:eth1: {loss: 1%}}, addresses: {a:eth1: fd00::3/64}}
  - [a:eth2, b:eth2]
  - [ "a:eth3" , b:eth3 ]
`))
	a, b := top.Nodes["a"], top.Nodes["b"]
	got := []any{a.Image, a.Gateway, a.Exec, a.Env, b.Interfaces, b.Loopbacks, b.Binds, top.Links}
	want := []any{
		"alpine:3.20", Strings{"fd00::1"}, Strings{"a:b:c", "q:r", "1:2"}, map[string]string{"k": "v:w"},
		map[string]Interface{"eth1": {Addresses: Strings{"fd00::1/64", "10.0.0.1/24"}}},
		Strings{"::2", "fd01::"}, Strings{"/a:/b"},
		[]Link{
			{Ends: []End{"a:eth1", "b"}, From: map[string]Shape{"a:eth1": {Delay: "1ms"}, "b:eth1": {Loss: "1%"}},
				Addresses: map[string]Strings{"a:eth1": {"fd00::3/64"}}},
			{Ends: []End{"a:eth2", "b:eth2"}},
			{Ends: []End{"a:eth3", "b:eth3"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
