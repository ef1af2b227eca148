package vnet_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// mixed is a chain of four routers whose second link is shaped and whose third is a LAN.
func mixed(id uint16) vnet.Plan {
	p := chain(id, 4)
	p.Links[1].Ends[0].Shape = slice.Shape{Rate: 100e6}
	p.Links[2].LAN = true
	p.Nodes = append(p.Nodes, vnet.NodePlan{Name: "beside"})
	p.Links[2].Ends = append(p.Links[2].Ends,
		vnet.End{Node: "beside", Interface: "left", Addresses: []netip.Prefix{prefix("10.0.2.3/24")}})
	return p
}

func TestWalksGoOnBehindQueuesAndLANs(t *testing.T) {
	n, err := platform(t).New(t.Context(), mixed(7))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	routers := []string{"r1", "r2", "r3", "r4"}
	for _, on := range []bool{true, false, true} {
		if err := n.FastPath(t.Context(), on); err != nil {
			t.Fatal(err)
		}
		if err := n.InStep(t.Context()); err != nil {
			t.Fatal(err)
		}
		ping := func(count int) error {
			_, err := n.Nodes["a"].Exec(context.Background(), "ping", "-c", fmt.Sprint(count), "-i0.01",
				"-W1", "10.0.4.2")
			return err
		}
		// and neighbours are known
		testkit.Eventually(t, func() error { return ping(1) }, 5*time.Second, "an answer")
		const count = 20
		// but for the one frame in a while that makes a kernel ask for its neighbour again
		testkit.Eventually(t, func() error {
			before := forwarded(t, n, routers)
			if err := ping(count); err != nil {
				return err
			}
			after := forwarded(t, n, routers)
			for i, r := range routers {
				if through := after[i] - before[i]; on != (through < count) {
					return fmt.Errorf("fast path %t: the kernel of %s forwarded %d of %d frames",
						on, r, through, 2*count)
				}
			}
			return nil
		}, 5*time.Second, "frames to take their way")
	}
}

func forwarded(t *testing.T, n *vnet.Network, names []string) (all []int) {
	t.Helper()
	for _, name := range names {
		out, err := n.Nodes[name].Exec(t.Context(), "grep", "^Ip:", "/proc/net/snmp")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out, "\n")
		heads, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		for i, h := range heads {
			if h == "ForwDatagrams" {
				var v int
				if _, err := fmt.Sscan(values[i], &v); err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
		}
	}
	return all
}
