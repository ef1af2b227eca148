package main

import (
	"net/http"
	"os"
	"testing"
)

func TestAnLSPIsAwaitedUntilItsHostHasReadTheChange(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	const topology = "name: lab\nnodes: {a: {routing: ospf}, b: {routing: ospf}}\nlinks: [[a, b]]\n" +
		"lsps: [{name: file, path: [a, b], to: 10.7.0.0/16}]\n"
	if err := os.WriteFile("lab.yaml", []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "lsp", "add", "a", "b", "--bandwidth", "1Mbit", "--to", "10.9.0.0/24", "--json", "--timeout",
		"0").want(t, 0, `(?s)^\{.*"name": "a--b",.*"10.9.0.0/24".*"by_hand": true`, "LSP a--b is asked for")
	for lsp, to := range map[string]string{"a--b": "10.8.0.0/24", "file": "10.8.1.0/24"} {
		var asked string
		w.when("/lsps", func(r *http.Request) { asked = r.URL.RawQuery })
		w.set(func(h *host) { h.behind = 3 })
		pergola(t, "lsp", "set", lsp, "--to", to).want(t, 0, "",
			"lab: LSP "+lsp+" is up: a ")
		w.set(func(h *host) {
			if h.behind > 0 {
				t.Errorf("LSP %s is said to be up by a host that has not read the change", lsp)
			}
		})
		if asked != "lsp="+lsp {
			t.Errorf("it asks for the LSPs %q", asked)
		}
	}
	w.set(func(h *host) { h.behind = 1000 })
	pergola(t, "lsp", "set", "file", "--to", "10.6.0.0/24", "--timeout", "300ms").want(t, 1, "",
		"is not as it was asked to be after 300ms: its host has not read the change yet")
}
