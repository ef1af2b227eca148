package report

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func TestLSPTraffic(t *testing.T) {
	l := &LSP{Excess: slice.Drop, Measured: &api.LSPTraffic{Frames: 30, Bytes: 3000, ExcessFrames: 10,
		ExcessBytes: 1000, Seconds: 8e-6}}
	same(t, draw(LSPTraffic(l)), `
          FRAMES  BYTES  TIME  EACH
reserved  30      3000   -     -
dropped   10      1000   -     -
all       40      4000   8µs   200ns
`)
	l.Excess, l.Measured = slice.Demote, &api.LSPTraffic{}
	same(t, draw(LSPTraffic(l)), `
          FRAMES  BYTES  TIME  EACH
reserved  0       0      -     -
demoted   0       0      -     -
all       0       0      0s    -
`)
}

func TestLSPs(t *testing.T) {
	to := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	spec := &slice.Slice{LSPs: []slice.LSP{
		{Name: "pe1--pe2", To: to, Hops: []slice.Hop{
			{Node: "pe1", Out: "eth1"}, {Node: "p1", In: "eth1", Out: "eth2", Label: 16},
			{Node: "pe2", In: "eth1", Label: slice.ImplicitNull},
		}},
		{Name: "own", To: to[:1], TTL: slice.Pipe, Hops: []slice.Hop{
			{Node: "pe1", Out: "eth1"}, {Node: "p1", In: "eth1", Label: 17},
		}},
	}}
	is := &api.SliceLSPs{Hops: []api.LSPHop{
		{LSP: "pe1--pe2", Node: "pe1"}, {LSP: "pe1--pe2", Node: "p1"}, {LSP: "pe1--pe2", Node: "pe2"},
		{LSP: "own", Node: "pe1"}, {LSP: "own", Node: "p1"},
	}}
	all := LSPs(spec, is)
	same(t, draw(LSPTable(all, ui.Styles{})), `
LSP       STATE  PATH                TO
pe1--pe2  up     pe1 -16> p1 -> pe2  10.9.0.0/24 2001:db8::/32
own       up     pe1 -17> p1         10.9.0.0/24
`)
	same(t, draw(LSPHops(&all[0], ui.Styles{})), `
ROUTER  STATE  IN    LABEL  DOES   OUT   LABEL
pe1     up     -     -      push   eth1  16
p1      up     eth1  16     pop    eth2  -
pe2     up     eth1  -      route  -     -
`)
	is.Hops[0].Problem = "has no route to 10.9.0.0/24 by other routers"
	is.Hops = is.Hops[:4]
	all = LSPs(spec, is)
	same(t, draw(LSPTable(all, ui.Styles{})), `
LSP       STATE  PATH                TO                         WHY
pe1--pe2  down   pe1 -16> p1 -> pe2  10.9.0.0/24 2001:db8::/32  pe1: has no route to 10.9.0.0/24 by other routers
own       down   pe1 -17> p1         10.9.0.0/24                p1: its host has not answered
`)
	same(t, draw(LSPHops(&all[1], ui.Styles{})), `
ROUTER  STATE  IN    LABEL  DOES  OUT   LABEL  WHY
pe1     up     -     -      push  eth1  17     -
p1      down   eth1  17     pop   -     -      its host has not answered
`)
}
