package controller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

func TestReservationsAreThoseOfSlicesThatAreThere(t *testing.T) {
	hosts := machines(2, func(h []store.HostState) {
		h[0].Reservable = slice.Reserve{Filters: 98304, Queues: 24576}
		h[1].Underlays = nil
	})
	slices := map[string]*slice.Slice{
		"lab": {Nodes: []slice.Node{
			{Name: "a", Host: "h1", CPU: 1, Reserve: slice.Reserve{Filters: 100, Queues: 4},
				Interfaces: []slice.Interface{
					{Name: "eth1", Reserve: 1e6, Claim: 2e6},
					{Name: "eth2"},
				}},
			{Name: "b", Host: "h2", Outside: true, Ports: []slice.HostPort{{Protocol: slice.TCP, Port: 80}},
				Claims: []slice.HostPort{{Protocol: slice.TCP, Port: 22}}},
			{Name: "c", Host: "h2"},
			{Name: "d", Host: "h9", CPU: 1},
		}, Links: []slice.Link{{Name: "l", Ends: []slice.End{
			{Node: "a", Interface: "eth1"}, {Node: "b", Interface: "eth1", Shape: slice.Shape{Rate: 3e6}},
		}}}},
	}
	records := []store.Record{
		{Name: "lab"},
		{Name: "gone"},
		{Name: "ends", Deleting: true},
		{Name: "bad", Corrupt: true},
	}
	read := func(name string) (*slice.Slice, error) {
		if s := slices[name]; s != nil {
			return s, nil
		}
		if name == "gone" {
			return nil, fmt.Errorf("network %s: %w", name, store.ErrNotFound)
		}
		return nil, errors.New("not to be read")
	}
	got, err := reservations(hosts, records, read)
	if err != nil {
		t.Fatal(err)
	}
	want := []api.HostReservations{
		{Host: "h1", Resources: []api.Reservation{
			{Kind: "cores", Capacity: 8, Reserved: 1}, {Kind: "memory", Capacity: 16 * gib},
			{
				Kind:     "filters",
				Capacity: 98304,
				Reserved: 100,
			}, {Kind: "queues", Capacity: 24576, Reserved: 4},
			{Kind: "bandwidth", Capacity: 10e9, Reserved: 3e6},
		}, Nodes: []api.NodeReservation{{Slice: "lab", Node: "a", Bandwidth: map[string]uint64{"eth1": 2e6},
			Claims:   []string{"eth1"},
			Reserved: map[string]float64{"cores": 1, "filters": 100, "queues": 4}}}},
		{Host: "h2", Resources: []api.Reservation{
			{Kind: "cores", Capacity: 8}, {Kind: "memory", Capacity: 16 * gib},
			{Kind: "bandwidth", Reserved: 3e6},
		}, Nodes: []api.NodeReservation{{Slice: "lab", Node: "b", Reserved: map[string]float64{},
			Ports: []string{"tcp/22", "tcp/80"}, Claims: []string{"tcp/22"}, Outside: true}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// What cannot be read for another reason is an error, not a list with a gap.
	records = append(records, store.Record{Name: "unreadable"})
	if got, err := reservations(hosts, records, read); err == nil {
		t.Errorf("a list without a slice that cannot be read: %v", got)
	}
}
