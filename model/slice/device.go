package slice

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Device is a device of the host that a node sees. Only root may use it.
type Device struct {
	Source string `json:"source"`           // on the host, below /dev
	Target string `json:"target"`           // in the node, below /dev
	Access string `json:"access,omitempty"` // "r" or "w" alone; empty: both
}

// everyNodeHas are devices that are in all nodes, under these names.
var everyNodeHas = []string{"/dev/full", "/dev/net/tun", "/dev/null", "/dev/ptmx", "/dev/random", "/dev/tty",
	"/dev/urandom", "/dev/zero"}

// ParseDevice reads SOURCE[:TARGET][:ACCESS], as Docker does. Of the letters of ACCESS, r and w count; m (mknod) does
// not: no node makes devices.
func ParseDevice(text string) (d Device, err error) {
	parts := strings.Split(text, ":")
	d.Source, d.Target = parts[0], parts[0]
	rest := parts[1:]
	if len(rest) > 0 && strings.HasPrefix(rest[0], "/") {
		d.Target, rest = rest[0], rest[1:]
	}
	access := "rw"
	if len(rest) > 0 {
		access, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 || strings.Trim(access, "rwm") != "" {
		return d, fmt.Errorf("%q is not a device", text)
	}
	reads, writes := strings.Contains(access, "r"), strings.Contains(access, "w")
	switch {
	case !reads && !writes:
		return d, fmt.Errorf("device %s is neither read nor written", d.Source)
	case !writes:
		d.Access = "r"
	case !reads:
		d.Access = "w"
	}
	for _, name := range []string{d.Source, d.Target} {
		if !strings.HasPrefix(name, "/dev/") || path.Clean(name) != name || strings.ContainsRune(name, 0) {
			return d, fmt.Errorf("%q is not a plain path below /dev", name)
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(d.Target, "/dev/"), "/")
	if slices.Contains([]string{"console", "fd", "mqueue", "pts", "shm", "stderr", "stdin", "stdout"}, first) ||
		d.Target != d.Source && slices.Contains(everyNodeHas, d.Target) {
		return d, fmt.Errorf("%s is another device in every node", d.Target)
	}
	return d, nil
}

// String writes it as ParseDevice reads it.
func (d Device) String() string {
	text := d.Source
	if d.Target != d.Source {
		text += ":" + d.Target
	}
	if d.Access != "" {
		text += ":" + d.Access
	}
	return text
}

// InEveryNode reports whether nodes have the device without asking for it.
func (d Device) InEveryNode() bool {
	return d.Source == d.Target && slices.Contains(everyNodeHas, d.Source)
}

// HasOwnDevices reports whether a node has devices that others have not.
func (n *Node) HasOwnDevices() bool {
	return slices.ContainsFunc(n.Devices, func(d Device) bool { return !d.InEveryNode() })
}
