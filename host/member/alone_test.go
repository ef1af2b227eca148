package member

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/hosts"
)

// opens notes what is opened.
type opens struct{ calls []string }

func (o *opens) OpenUnderlay(_ context.Context, c UnderlayConfig) error {
	o.calls = append(o.calls, fmt.Sprint(c.Interfaces))
	return nil
}

func (o *opens) UnderlayState(context.Context) (UnderlayState, error) { return UnderlayState{}, nil }

func TestAMachineAloneOpensAnInterfaceWhileThereAreUDPPorts(t *testing.T) {
	prefix := netip.MustParsePrefix
	all := []hosts.Underlay{
		{Name: "v6", Addresses: []netip.Prefix{prefix("2001:db8::1/64")}},
		{Name: "eth0", Addresses: []netip.Prefix{prefix("2001:db8::2/64"), prefix("192.0.2.1/24")}},
		{Name: "eth1", Addresses: []netip.Prefix{prefix("198.51.100.1/24")}},
	}
	a := NewAlone(func() ([]hosts.Underlay, error) { return all, nil }, slog.New(slog.DiscardHandler))
	by, ctx := &opens{}, context.Background()
	for i, step := range []struct {
		by      Tunnels
		wanted  bool
		address string
		calls   []string
	}{
		{nil, true, "192.0.2.1", nil},             // no network yet
		{by, false, "invalid IP", []string{"[]"}}, // what an earlier process left
		{by, false, "invalid IP", nil},
		{by, true, "192.0.2.1", []string{"[eth0]"}},
		{by, true, "192.0.2.1", nil},
		{by, false, "invalid IP", []string{"[]"}},
	} {
		by.calls = nil
		if have := a.Open(ctx, step.by, step.wanted); have.String() != step.address {
			t.Errorf("step %d: address %v", i, have)
		}
		if diff := cmp.Diff(step.calls, by.calls); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
	all = slices.Delete(all, 1, 3)
	if have := a.Open(ctx, by, true); have.IsValid() {
		t.Errorf("without an IPv4 address: %v", have)
	}
}
