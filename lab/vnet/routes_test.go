package vnet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
)

// Hosts behind line cards reach each other by routes of all forms: by a gateway of the other family, an object, and a
// group of objects.
func TestRoutesOfAllFormsLeadToLineCards(t *testing.T) {
	const routers = 3
	plan := chain(7, routers)
	plan.Links[0].Ends[0].NIC, plan.Links[routers].Ends[1].NIC = true, true
	via := func(i int, text string, args ...any) vnet.Hop {
		return vnet.Hop{Via: addr(text, args...), Interface: plan.Links[i].Ends[0].Interface}
	}
	plan.Nodes[1].Routes[0].Hops = []vnet.Hop{via(1, "2001:db8:0:1::2")}
	second := &plan.Nodes[2]
	second.Objects = []vnet.Object{{ID: 1, Hop: via(2, "2001:db8:0:2::2")},
		{ID: 2, Members: []vnet.Member{{ID: 1, Weight: 3}}}}
	second.Routes[0].Hops, second.Routes[0].Object = nil, 2
	second.Routes[1].Hops, second.Routes[1].Object = nil, 1
	n, err := platform(t).New(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, on := range []bool{false, true, false} {
		if err := n.FastPath(t.Context(), on); err != nil {
			t.Fatal(err)
		}
		if err := n.InStep(t.Context()); on && err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{fmt.Sprintf("10.0.%d.2", routers),
			fmt.Sprintf("2001:db8:0:%x::2", routers)} {
			testkit.Eventually(t, func() error {
				_, err := n.Nodes["a"].Exec(context.Background(), "ping", "-c1", "-W1", to)
				return err
			}, 5*time.Second, "an answer from "+to)
		}
	}
}
