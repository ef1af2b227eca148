package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// Reservable is the table of what can be reserved of machines.
func Reservable(all []api.HostReservations) *ui.Table {
	t := &ui.Table{Columns: []string{"HOST", "RESOURCE", "CAPACITY", "RESERVED", "LEFT"}}
	for _, h := range all {
		for _, r := range h.Resources {
			capacity, left := "-", "-"
			if r.Capacity > 0 {
				capacity = resource(r.Kind, r.Capacity)
				left = resource(r.Kind, max(r.Capacity-r.Reserved, 0))
			}
			t.Row(cmp.Or(h.Host, "-"), r.Kind, capacity, resource(r.Kind, r.Reserved), left)
		}
	}
	return t
}

// Reservations is the table of the nodes that have reserved something; nil where none has.
func Reservations(all []api.HostReservations) *ui.Table {
	t := &ui.Table{Columns: []string{"HOST", "NETWORK", "NODE", "RESERVED"}}
	some := false
	for _, h := range all {
		for _, n := range h.Nodes {
			var parts []string
			for _, kind := range slices.Sorted(maps.Keys(n.Reserved)) {
				parts = append(parts, kind+" "+resource(kind, n.Reserved[kind]))
			}
			for _, name := range slices.Sorted(maps.Keys(n.Bandwidth)) {
				parts = append(parts, name+" "+ui.Rate(n.Bandwidth[name])+mark(n, name))
			}
			for _, port := range n.Ports {
				parts = append(parts, port+mark(n, port))
			}
			if n.Outside {
				parts = append(parts, "outside")
			}
			t.Row(cmp.Or(h.Host, "-"), n.Slice, n.Node, strings.Join(parts, ", "))
			some = true
		}
	}
	if !some {
		return nil
	}
	return t
}

// mark says how a node came to a port, or to the bandwidth of an interface: empty by the topology, + by a request while
// it ran, * because a process has bound it.
func mark(n api.NodeReservation, what string) string {
	switch {
	case slices.Contains(n.Claims, what):
		return "+"
	case slices.Contains(n.Bound, what):
		return "*"
	}
	return ""
}

// resource prints an amount of a kind, as api.Reservation has it.
func resource(kind string, n float64) string {
	switch kind {
	case "memory", "buffer":
		return ui.Bytes(int64(n))
	case api.Bandwidth:
		return ui.Rate(uint64(n))
	}
	return fmt.Sprintf("%.6g", n)
}
