package hosts

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// Allowance is what every slice of the cluster may use of a machine itself. It is given when the machine is started.
type Allowance struct {
	Paths   []string `json:"paths,omitempty"` // directories, with all that is below them, and single devices
	Network bool     `json:"network,omitempty"`
	Outside bool     `json:"outside,omitempty"` // connections to outside of all slices
	Volumes bool     `json:"volumes,omitempty"` // room on its disk
	Ports   []Ports  `json:"ports,omitempty"`   // of its addresses
}

// Ports is a range of ports, of TCP and of UDP.
type Ports = slice.Ports

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
	switch {
	case h.Outside:
		return "", a.Outside
	case h.Volumes:
		return "", a.Volumes
	case h.Port != "":
		ports, ok := h.Ports()
		return "", ok && slices.ContainsFunc(joined(slices.Clone(a.Ports)), func(r Ports) bool {
			return r.Contains(ports)
		})
	case h.Path == "":
		return "", a.Network
	}
	path := filepath.Clean(h.Path)
	if h.Device { // who allows a directory does not mean all the devices in it
		return path, slices.Contains(a.Paths, path)
	}
	for _, dir := range a.Paths {
		if path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			return dir, filepath.IsAbs(path)
		}
	}
	return "", false
}

// With is what allows these holds, too.
func (a Allowance) With(holds ...slice.Hold) Allowance {
	a.Paths, a.Ports = slices.Clone(a.Paths), slices.Clone(a.Ports)
	for _, h := range holds {
		if _, covered := a.Covers(h); covered {
			continue
		}
		switch {
		case h.Outside:
			a.Outside = true
		case h.Volumes:
			a.Volumes = true
		case h.Port != "":
			if ports, ok := h.Ports(); ok {
				a.Ports = append(a.Ports, ports)
			}
		case h.Path == "":
			a.Network = true
		default:
			a.Paths = append(a.Paths, filepath.Clean(h.Path))
		}
	}
	a.Ports = joined(a.Ports)
	return a
}

// joined gives the same ports in ascending ranges, as few as there can be.
func joined(ranges []Ports) (all []Ports) {
	slices.SortFunc(ranges, func(a, b Ports) int { return cmp.Compare(a.First, b.First) })
	for _, r := range ranges {
		if n := len(all); n > 0 && int(r.First) <= int(all[n-1].Last)+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// ListPorts writes ranges as flags have them.
func ListPorts(ranges []Ports) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// Advice says what to do so that slices may have holds that a host does not allow.
func Advice(host string, has Allowance, missing ...slice.Hold) string {
	return "apply the network on " + host + " itself, as root, or start Pergola there with " +
		strings.Join(Flags(has, missing...), " ")
}

// Flags are those of a server that lets every slice have holds that it does not allow yet. They keep what it allows:
// the value of a flag replaces the one that is stored.
func Flags(has Allowance, missing ...slice.Hold) (flags []string) {
	all := has.With(missing...)
	if all.Network && !has.Network {
		flags = append(flags, "--host-network")
	}
	if all.Outside && !has.Outside {
		flags = append(flags, "--outside")
	}
	if all.Volumes && !has.Volumes {
		flags = append(flags, "--volumes")
	}
	if ports := ListPorts(all.Ports); ports != ListPorts(joined(slices.Clone(has.Ports))) {
		flags = append(flags, "--ports "+ports)
	}
	if len(all.Paths) > len(has.Paths) {
		flags = append(flags, "--host-paths "+strings.Join(all.Paths, ","))
	}
	return flags
}

// WhyNot says why not every slice may have these holds, in words that follow the host's name; empty where it may.
func (a Allowance) WhyNot(holds ...slice.Hold) string {
	var whys, ports []string
	for _, h := range holds {
		if _, ok := a.Covers(h); ok {
			continue
		}
		if h.Port != "" {
			ports = append(ports, h.Port)
			continue
		}
		whys = append(whys, "does not allow "+h.String())
	}
	switch {
	case len(ports) > 0 && len(a.Ports) == 0:
		whys = append(whys, "allows no ports, not "+strings.Join(ports, ", "))
	case len(ports) > 0:
		whys = append(whys, fmt.Sprintf("allows ports %s only, not %s", ListPorts(a.Ports),
			strings.Join(ports, ", ")))
	}
	return strings.Join(whys, " and ")
}
