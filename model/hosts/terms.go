package hosts

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// Allowance is what every slice of the cluster may use of a machine itself. It is given when the machine is started.
type Allowance struct {
	Paths   []string `json:"paths,omitempty"` // directories, with all that is below them
	Network bool     `json:"network,omitempty"`
}

// Terms are everything that a machine's root allows slices to use of it. The machine keeps them itself, because every
// member of the cluster can write to the store. Values are not changed once they are shared.
type Terms struct {
	Allowance
	// Given is what root asked for on this machine, by slice.
	Given map[string][]slice.Hold `json:"given,omitempty"`
}

// A TermsStore keeps a machine's terms.
type TermsStore interface {
	Terms() *Terms
	// Forget is called when a slice is being deleted, before its name can be used again, or when it is found
	// deleted.
	Forget(ctx context.Context, slice string) error
}

// Covers reports whether a slice may have a hold, and the directory that its path must not leave; empty where root gave
// this path.
func (t *Terms) Covers(name string, h slice.Hold) (dir string, ok bool) {
	if slices.ContainsFunc(t.Given[name], h.Within) {
		return "", true
	}
	return t.Allowance.Covers(h)
}

// Covers reports whether every slice may have a hold, and the directory that its path must not leave.
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

// Advice says what to do so that a slice may have a hold.
func Advice(host string, h slice.Hold) string {
	flag := "--host-network"
	if h.Path != "" {
		flag = "--host-paths " + filepath.Clean(h.Path)
	}
	return "apply the slice on " + host + " itself, as root, or start Pergola there with " + flag
}
