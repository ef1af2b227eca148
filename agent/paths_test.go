package agent

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/substrate"
)

func TestPathsAreSurveyed(t *testing.T) {
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	peers := map[string]netip.Addr{
		"B": at(2), "C": at(3), "D": at(4), "same": at(1), "nowhere": {}, "other family": netip.MustParseAddr("2001:db8::1"),
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
	found := surveyPaths(at(1), peers, before, ask)
	if diff := cmp.Diff(map[string]int{"B": 1400, "C": 1500, "D": 1350}, found); diff != "" {
		t.Errorf("found (-want +have):\n%s", diff)
	}
	have := narrowPaths(found, []substrate.Underlay{{MTU: 1500}, {MTU: 1380}})
	if diff := cmp.Diff(map[string]int{"B": 1400, "D": 1350}, have); diff != "" {
		t.Errorf("narrow (-want +have):\n%s", diff)
	}
	if have := narrowPaths(map[string]int{"C": 1500}, []substrate.Underlay{{MTU: 1500}}); have != nil {
		t.Errorf("narrow: %v", have)
	}
}
