package sockets

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/sdk/message"
)

func TestQueuesAndReservationsAreChangedBySocket(t *testing.T) {
	b := newBed(t)
	k := b.Sockets.open[sliver.ID{Slice: 7, Node: "west"}]
	for _, tt := range []struct {
		request string
		code    message.Code // empty: it is done
	}{
		{`{"do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, "share": 3, "length": "64KiB"}]}`, ""},
		{`{"do": "reserve", "ports": ["tcp/8080"], "bandwidth": {"eth1": 1000000}}`, ""},
		{`{"do": "release", "node": "east", "ports": ["tcp/8080"], "interfaces": ["eth1"]}`, ""},
		{`{"do": "reservations"}`, ""},
		{`{"do": "reserve", "ports": ["tcp/80"]}`, message.Forbidden},
		{`{"do": "reserve", "ports": ["tcp/81"]}`, message.Busy},
		{`{"do": "reserve"}`, message.Invalid},
		{`{"do": "reserve", "bandwidth": {"eth1": 0}}`, message.Invalid},
		{`{"do": "reserve", "bandwidth": {"eth1": -1}}`, message.Invalid},
		{`{"do": "reserve", "interfaces": ["eth1"]}`, message.Invalid},
		{`{"do": "hello", "ports": ["tcp/81"]}`, message.Invalid},
		{`{"do": "set_queues", "interface": "eth1"}`, message.Invalid},
		{`{"do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, "length": "long"}]}`, message.Invalid},
	} {
		a := k.answer(parse([]byte(tt.request), nil))
		if len(a) != 1 || a[0].Code != tt.code || (a[0].Error == "") != (tt.code == "") {
			t.Errorf("%s: %+v", tt.request, a)
		}
	}
	want := []string{
		"west eth1 1: true, 64KiB",
		"west [tcp/8080] [] map[eth1:1Mbit]",
		"east [] [tcp/8080] map[eth1:0bit]",
	}
	if diff := cmp.Diff(want, b.nodes.asked); diff != "" {
		t.Error(diff)
	}
}
