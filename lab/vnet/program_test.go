package vnet_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
)

// switched is a chain of one router, with a switch that is a packet program before it, and a third host there.
func switched(id uint16) vnet.Plan {
	p := chain(id, 1)
	a, r := p.Links[0].Ends[0], p.Links[0].Ends[1]
	c := vnet.End{Node: "c", Interface: "right", Addresses: []netip.Prefix{prefix("10.0.0.3/24")}}
	p.Nodes = append(p.Nodes, vnet.NodePlan{Name: "p"}, vnet.NodePlan{Name: "c"})
	p.Links[0].Ends = []vnet.End{a, {Node: "p", Interface: "if1"}}
	p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{{Node: "p", Interface: "if2"}, r}},
		vnet.LinkPlan{Ends: []vnet.End{{Node: "p", Interface: "if3"}, c}})
	return p
}

// programs opens what packet programs of nodes are put into.
func programs(t *testing.T, g *vnet.Platform) *node.Nodes {
	t.Helper()
	n, err := node.Open(g.HostNetwork.Nodes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.Delete("p"), n.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// built is a node that runs an example of examples/programs, with these interfaces of the network's node.
func built(t *testing.T, n *vnet.Network, name, source string, interfaces ...string) node.Node {
	t.Helper()
	object, err := program.Build(t.Context(), filepath.Join(testkit.ModuleRoot(t), "examples", "programs", source))
	if err != nil {
		t.Fatal(err)
	}
	w := node.Node{Slice: uint32(n.Plan.Slice), Object: object, Digest: source, SlowPath: node.SlowInterface}
	for _, i := range interfaces {
		w.Interfaces = append(w.Interfaces, n.PortIndex(name, i))
	}
	return w
}

// switchOn makes the network of switched, on the fast path, with its switch.
func switchOn(t *testing.T) (*vnet.Network, *node.Nodes, node.Node) {
	t.Helper()
	g := platform(t)
	n, err := g.New(t.Context(), switched(7))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.FastPath(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	all := programs(t, g)
	p := built(t, n, "p", "l2.c", "if1", "if2", "if3")
	if err := all.Set("p", p); err != nil {
		t.Fatal(err)
	}
	return n, all, p
}

func TestASwitchThatIsAPacketProgramForwards(t *testing.T) {
	n, all, _ := switchOn(t)
	for from, to := range map[string]string{"a": "10.0.1.2", "b": "10.0.0.1", "c": "10.0.0.1"} {
		testkit.Eventually(t, func() error {
			out, err := n.Nodes[from].Exec(context.Background(), "ping", "-c5", "-i0.01", "-W1", to)
			if err != nil {
				return errors.Join(err, fmt.Errorf("%s", out))
			}
			return nil
		}, 5*time.Second, "an answer")
	}
	counters, err := all.Counters("p")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counters)
	if counters["learned"] < 3 || counters["copies flooded"] == 0 || counters["verdict send"] < 30 {
		t.Errorf("the switch counted %v", counters)
	}
}

// A switch is replaced again and again, while hosts ping each other through it as fast as they can.
func TestAReplacedSwitchLosesNoPing(t *testing.T) {
	n, all, p := switchOn(t)
	ping := func(args ...string) (string, error) {
		return n.Nodes["a"].Exec(context.Background(), "ping", append([]string{"-q", "-W5"}, args...)...)
	}
	testkit.Eventually(t, func() error {
		_, err := ping("-c1", "10.0.1.2")
		return err
	}, 5*time.Second, "an answer")
	type result struct {
		out string
		err error
	}
	done := make(chan result)
	go func() {
		out, err := ping("-f", "-c60000", "10.0.1.2")
		done <- result{out, err}
	}()
	for version := 0; ; version++ {
		p.Digest = fmt.Sprint(version)
		if err := all.Set("p", p); err != nil {
			t.Error(err)
		}
		select {
		case r := <-done:
			t.Logf("%d replacements: %s", version, r.out)
			if r.err != nil || !strings.Contains(r.out, " 0% packet loss") || version < 3 {
				t.Errorf("%d replacements, %v: %s", version, r.err, r.out)
			}
			return
		default:
		}
	}
}
