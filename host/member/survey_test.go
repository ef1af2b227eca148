package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/hosts"
)

func TestPathsAreSurveyed(t *testing.T) {
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	peers := map[string]netip.Addr{
		"B": at(2), "C": at(3), "D": at(4), "same": at(1), "nowhere": {},
		"other family": netip.MustParseAddr("2001:db8::1"),
	}
	ask := func(_, peer netip.Addr) (int, error) {
		switch peer {
		case at(2):
			return 1400, nil
		case at(3):
			return 1500, nil
		case at(4):
			return 0, errors.New("no route")
		}
		t.Errorf("asked for %s", peer)
		return 0, nil
	}
	before := map[string]int{"B": 1300, "D": 1350, "gone": 1200}
	found := surveyPaths(t.Context(), at(1), peers, before, ask)
	if diff := cmp.Diff(map[string]int{"B": 1400, "C": 1500, "D": 1350}, found); diff != "" {
		t.Errorf("found (-want +have):\n%s", diff)
	}
	have := narrowPaths(found, []hosts.Underlay{{MTU: 1500}, {MTU: 1380}})
	if diff := cmp.Diff(map[string]int{"B": 1400, "D": 1350}, have); diff != "" {
		t.Errorf("narrow (-want +have):\n%s", diff)
	}
	if have := narrowPaths(map[string]int{"C": 1500}, []hosts.Underlay{{MTU: 1500}}); have != nil {
		t.Errorf("narrow: %v", have)
	}
}

func TestASurveyEndsSoonWhenTheAgentDoes(t *testing.T) {
	peers := map[string]netip.Addr{}
	for n := range byte(200) {
		peers[fmt.Sprint("H", n)] = netip.AddrFrom4([4]byte{192, 0, 2, n})
	}
	ctx, leave := context.WithCancel(t.Context())
	var asked atomic.Int32
	ask := func(netip.Addr, netip.Addr) (int, error) {
		asked.Add(1)
		leave()
		<-ctx.Done()
		return 1500, nil
	}
	surveyPaths(ctx, netip.MustParseAddr("198.51.100.1"), peers, nil, ask)
	if n := asked.Load(); n > 64 { // those under way, and those that took their turn
		t.Errorf("%d hosts were asked", n)
	}
}

func TestMorePassesOnlyAfterSeveralSurveys(t *testing.T) {
	for name, c := range map[string]struct {
		found, want []int // 0: the host is not among them
	}{
		"at first":        {[]int{1500, 1500}, []int{1500, 1500}},
		"less, at once":   {[]int{1500, 1400, 1300}, []int{1500, 1400, 1300}},
		"one answer lost": {[]int{1400, 1500, 1400, 1500, 1500, 1400}, []int{1400, 1400, 1400, 1400, 1400, 1400}},
		"more":            {[]int{1400, 1500, 1500, 1500, 1500}, []int{1400, 1400, 1400, 1500, 1500}},
		"more and more":   {[]int{1400, 1450, 1480, 1500, 1500}, []int{1400, 1400, 1400, 1500, 1500}},
		"twice more": {
			[]int{1300, 1400, 1400, 1400, 1500, 1500, 1500},
			[]int{1300, 1300, 1300, 1400, 1400, 1400, 1500},
		},
		"gone, and there again": {
			[]int{1400, 1500, 1500, 0, 1450, 1500, 1500, 1500},
			[]int{1400, 1400, 1400, 0, 1450, 1450, 1450, 1500},
		},
		"gone for good": {[]int{1400, 1500, 0, 0}, []int{1400, 1400, 0, 0}},
	} {
		before, wider := map[string]int{}, map[string]int{}
		for i, mtu := range c.found {
			found := map[string]int{}
			if mtu > 0 {
				found["B"] = mtu
			}
			delayWider(found, before, wider)
			if found["B"] != c.want[i] {
				t.Errorf("%s: after survey %d, %d passes, want %d", name, i+1, found["B"], c.want[i])
			}
			before = found
		}
		if len(before) == 0 && len(wider) > 0 {
			t.Errorf("%s: %v is kept of a host that is gone", name, wider)
		}
	}
}
