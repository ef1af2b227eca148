package hosts

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// Allowance is what any slice of the cluster may have of a machine itself, as its root started it.
type Allowance struct {
	Paths   []string `json:"paths,omitempty"` // directories, with all that is below them
	Network bool     `json:"network,omitempty"`
}

// Terms are all that a machine's root lets slices have of it. A machine goes by its own terms: what stands in the store, every member of
// the cluster can write. Values are not changed once they are shared.
type Terms struct {
	Allowance
	// Given is what root of this machine asked for on this machine, by slice.
	Given map[string][]slice.Hold `json:"given,omitempty"`
}

// Consents keeps a machine's terms.
type Consents interface {
	Terms() *Terms
	// Forget is called when a slice is going, before another one can get its name, or is seen to have gone.
	Forget(ctx context.Context, slice string) error
}

// Covers reports whether a slice may have a hold, and below which directory a path must stay; empty: it is root's own choice.
func (t *Terms) Covers(name string, h slice.Hold) (dir string, ok bool) {
	if slices.ContainsFunc(t.Given[name], h.Within) {
		return "", true
	}
	return t.Allowance.Covers(h)
}

// Covers reports whether any slice may have a hold, and below which directory a path must stay.
func (a Allowance) Covers(h slice.Hold) (dir string, ok bool) {
	if h.Path == "" {
		return "", a.Network
	}
	path := filepath.Clean(h.Path)
	for _, dir := range a.Paths {
		if path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			return dir, filepath.IsAbs(path)
		}
	}
	return "", false
}

// Advice says how a machine is made to let slices have something of it.
func Advice(host string, h slice.Hold) string {
	flag := "--host-network"
	if h.Path != "" {
		flag = "--host-paths " + filepath.Clean(h.Path)
	}
	return "apply the slice on " + host + " itself, as root, or start Pergola there with " + flag
}
