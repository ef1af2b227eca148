package vnet_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func platform(t testing.TB) *vnet.Platform {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	g, err := vnet.Open(t.Context(), dir, vnet.Log())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func addr(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}
func prefix(format string, args ...any) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(format, args...))
}

// chain is two hosts with routers between them.
func chain(slice uint16, routers int) vnet.Plan {
	p := vnet.Plan{Slice: slice}
	name := func(i int) string {
		switch i {
		case 0:
			return "a"
		case routers + 1:
			return "b"
		}
		return fmt.Sprintf("r%d", i)
	}
	for i := range routers + 2 {
		n := vnet.NodePlan{Name: name(i), Router: i > 0 && i <= routers}
		if i <= routers {
			n.Routes = append(n.Routes,
				vnet.Route{To: prefix("10.0.%d.0/24", routers),
					Hops: []vnet.Hop{{Via: addr("10.0.%d.2", i)}}},
				vnet.Route{To: prefix("2001:db8:0:%x::/64", routers),
					Hops: []vnet.Hop{{Via: addr("2001:db8:0:%x::2", i)}}})
		}
		if i > 0 {
			n.Routes = append(n.Routes,
				vnet.Route{To: prefix("10.0.0.0/24"), Hops: []vnet.Hop{{Via: addr("10.0.%d.1", i-1)}}},
				vnet.Route{To: prefix("2001:db8::/64"),
					Hops: []vnet.Hop{{Via: addr("2001:db8:0:%x::1", i-1)}}})
		}
		if i == routers { // on the link
			n.Routes = n.Routes[2:]
		}
		if i == 1 {
			n.Routes = n.Routes[:len(n.Routes)-2]
		}
		p.Nodes = append(p.Nodes, n)
	}
	for i := range routers + 1 {
		p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{
			{Node: name(i), Interface: "right", Addresses: []netip.Prefix{prefix("10.0.%d.1/24", i), prefix("2001:db8:0:%x::1/64", i)}},
			{Node: name(i + 1), Interface: "left", Addresses: []netip.Prefix{prefix("10.0.%d.2/24", i), prefix("2001:db8:0:%x::2/64", i)}},
		}})
	}
	return p
}

func TestChainReachesItsEnd(t *testing.T) {
	g := platform(t)
	const routers = 5
	start := time.Now()
	n, err := g.New(t.Context(), chain(7, routers))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("made in %v", time.Since(start))
	ping := func() {
		t.Helper()
		for _, to := range []string{fmt.Sprintf("10.0.%d.2", routers),
			fmt.Sprintf("2001:db8:0:%x::2", routers)} {
			testkit.Eventually(t, func() error {
				_, err := n.Nodes["a"].Exec(context.Background(), "ping", "-c1", "-W1", to)
				return err
			}, 5*time.Second, "an answer from "+to)
		}
	}
	for _, on := range []bool{false, true, false} {
		if err := n.FastPath(t.Context(), on); err != nil {
			t.Fatal(err)
		}
		if err := n.InStep(t.Context()); err != nil {
			t.Fatal(err)
		}
		ping()
	}
	start = time.Now()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %v", time.Since(start))
}
