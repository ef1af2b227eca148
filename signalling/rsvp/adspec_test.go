package rsvp

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

func parameter(number uint8, word uint32) message.Parameter {
	return message.Parameter{Number: number, Words: []uint32{word}}
}

// The egress learns of how many routers and of how slow links the path is.
func TestTheEgressLearnsWhatThePathIsLike(t *testing.T) {
	w := chain(t, 4, 1000)
	w.routers[1].config.Interfaces[1].Bandwidth, w.routers[1].config.Interfaces[1].MTU = 700, 1400
	w.start(1)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
	w.run(testTick)
	want := message.Adspec{Services: []message.AdService{
		{Service: message.General, Parameters: []message.Parameter{parameter(paramHops, 3),
			parameter(paramBandwidth, math.Float32bits(700)), parameter(paramLatency, indeterminate),
			parameter(paramMTU, 1400)}},
		{Service: message.ControlledLoad},
	}}
	have := w.routers[3].lsps[k].path.adspec
	if have == nil {
		t.Fatal("it learns nothing")
	}
	if diff := cmp.Diff(want, *have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	w.check()
}

// What a router does not have, or does not know, it says. Others' numbers can be anything.
func TestWhatARouterDoesNotHaveItSays(t *testing.T) {
	l := newLink(Interface{Bandwidth: 1000})
	many := message.Parameter{Number: paramHops, Words: []uint32{1, 2}}
	before := message.Adspec{Services: []message.AdService{
		{Service: message.General, Parameters: []message.Parameter{parameter(99, 5), many,
			parameter(paramHops, math.MaxUint32),
			parameter(paramBandwidth, math.Float32bits(float32(math.NaN()))), parameter(paramLatency, 7),
			parameter(paramMTU, 9000)}},
		{Service: message.Guaranteed, Parameters: []message.Parameter{parameter(133, 1)}},
	}}
	unknown, several := parameter(99, 5), many
	unknown.Invalid, several.Invalid = true, true
	want := message.Adspec{Services: []message.AdService{
		{Service: message.General, Parameters: []message.Parameter{unknown, several,
			parameter(paramHops, math.MaxUint32), parameter(paramBandwidth, math.Float32bits(1000)),
			parameter(paramLatency, indeterminate), parameter(paramMTU, 1500)}},
		{Service: message.Guaranteed, Broken: true, Parameters: []message.Parameter{parameter(133, 1)}},
	}}
	if diff := cmp.Diff(want, compose(before, l)); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	if before.Services[0].Parameters[0].Invalid || firstAdspec.Services[0].Parameters[0].Words[0] != 0 {
		t.Error("what came is changed")
	}
}
