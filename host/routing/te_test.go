package routing_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
)

// A network that runs gets its first LSP by RSVP-TE: links are flooded, and no daemon starts anew, then or when the LSP
// is removed.
func TestLinksAreFloodedWhereThereAreLSPs(t *testing.T) {
	for proto, show := range map[slice.Protocol]string{
		slice.OSPF: "show ip ospf mpls-te database json", slice.ISIS: "show isis mpls-te database json",
	} {
		t.Run(string(proto), func(t *testing.T) {
			testkit.LeakCheck(t)
			l := daemons.New(t, square(allFRR, proto))
			start(t, l)
			converge(t, l, nil, time.Minute)
			before := daemonPIDs(t, l, "r1")
			l.Slice.LSPs = []slice.LSP{{Name: "gold", Signal: &slice.Signal{Number: 1}}}
			link := te.Link{Bandwidth: 1_250_000, Reservable: 1_250_000}
			link.Unreserved[7] = 777_000
			for i := range l.Slice.Nodes {
				n := &l.Slice.Nodes[i]
				if said := apply(t, l, n); said != "" {
					t.Errorf("%s says: %s", n.Name, said)
				}
				if !routing.FloodsLinks(n) {
					t.Errorf("%s floods no links", n.Name)
				}
				lines := append(frr.Link("eth2", nil, te.Link{}), frr.Link("eth2", &te.Link{}, link)...)
				configure := "configure terminal\n" + strings.Join(lines, "\n") + "\nend"
				if out, err := l.Exec(n.Name, "vtysh", "-c", configure); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			// In FRR's words: its database of IS-IS often has only one end of a link (decision 029).
			known := regexp.MustCompile(`"class-type-6":\s*0\.0+\s*\},\s*\{\s*"class-type-7":\s*777000\.0`)
			testkit.Eventually(t, func() error {
				out, err := l.Exec("r3", "vtysh", "-c", show)
				if err == nil && !known.MatchString(out) {
					err = fmt.Errorf("r3 knows %s", out)
				}
				return err
			}, time.Minute, "what is unreserved to be known at another router")
			l.Slice.LSPs = nil
			if said := apply(t, l, l.Slice.Node("r1")); said != "" {
				t.Errorf("without LSPs, r1 says: %s", said)
			}
			if now := daemonPIDs(t, l, "r1"); now != before {
				t.Errorf("daemons were\n%s and are\n%s", before, now)
			}
		})
	}
}
