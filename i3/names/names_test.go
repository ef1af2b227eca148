package names_test

import (
	"testing"

	"github.com/pergola-net/pergola/i3/names"
)

func TestResolveReadsAddressesWithAPortAndWithout(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":          "192.0.2.1:5610",
		"192.0.2.1:9":        "192.0.2.1:9",
		"2001:db8::1":        "[2001:db8::1]:5610",
		"[2001:db8::1]:9":    "[2001:db8::1]:9",
		"::ffff:192.0.2.1":   "192.0.2.1:5610",
		"[::ffff:192.0.2.1]": "",
		"192.0.2.1:0":        "",
		"192.0.2.1:port":     "",
		"192.0.2.1:70000":    "",
		"":                   "",
		"no name.invalid":    "",
	} {
		got, err := names.Resolve(t.Context(), text)
		if want == "" {
			if err == nil {
				t.Errorf("%q is read as %s", text, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q is read as %s, %v; want %s", text, got, err, want)
		}
	}
}
