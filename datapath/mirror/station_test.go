package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// Of an address, its broadcast addresses count as the node's own, too, until the last that has them is gone.
func TestOwnAddresses(t *testing.T) {
	m := newMemory()
	as := addresses{out: m, all: map[addressKey]uint32{}, own: map[netip.Addr]int{}, on: map[netip.Addr]int{}}
	key := func(prefix, broadcast string) addressKey {
		k := addressKey{link: 1, prefix: netip.MustParsePrefix(prefix)}
		k.subnet = k.prefix.Masked()
		if broadcast != "" {
			k.broadcast = netip.MustParseAddr(broadcast)
		}
		return k
	}
	one, two, alone := key("10.0.0.1/24", "10.0.0.255"), key("10.0.0.2/24", "10.0.0.99"), key("192.0.2.0/31", "")
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error { return as.set(one, 1) }, "10.0.0.0 10.0.0.1 10.0.0.255"},
		{func() error { return as.set(one, 1) }, "10.0.0.0 10.0.0.1 10.0.0.255"},
		{func() error { return as.set(two, 1) }, "10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.255 10.0.0.99"},
		{func() error { _, err := as.remove(one); return err }, "10.0.0.0 10.0.0.2 10.0.0.255 10.0.0.99"},
		{func() error { _, err := as.remove(one); return err }, "10.0.0.0 10.0.0.2 10.0.0.255 10.0.0.99"},
		{func() error { _, err := as.remove(two); return err }, ""},
		{func() error { return as.set(alone, 1) }, "192.0.2.0"},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		var have []string
		for a := range maps.Keys(m.addresses) {
			have = append(have, a.String())
		}
		slices.Sort(have)
		if s := strings.Join(have, " "); s != c.want {
			t.Errorf("own: %s, want %s", s, c.want)
		}
	}
}

// On a point-to-point link the subnet is that of the other end.
func TestAddressesWithAPeer(t *testing.T) {
	l := newLab(t)
	l.synced()
	own := func() (all []string) {
		s := l.session()
		s.mu.Lock()
		defer s.mu.Unlock()
		for a := range s.view.addresses.on {
			if strings.HasPrefix(a.String(), "192.0.2.") || strings.HasPrefix(a.String(), "198.51.100.") ||
				strings.HasPrefix(a.String(), "203.0.113.") {
				all = append(all, a.String())
			}
		}
		slices.Sort(all)
		return all
	}
	for _, c := range []struct{ do, want string }{
		{"ip addr add 192.0.2.1 peer 198.51.100.2/24 dev eth0", "192.0.2.1 198.51.100.0 198.51.100.255"},
		{"ip addr add 192.0.2.1 peer 203.0.113.2/24 dev eth0", "192.0.2.1 198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255"},
		{"ip addr del 192.0.2.1 peer 198.51.100.2/24 dev eth0", "192.0.2.1 203.0.113.0 203.0.113.255"},
		{"ip addr del 192.0.2.1 peer 203.0.113.2/24 dev eth0", ""},
	} {
		l.script(c.do)
		testkit.Eventually(t, func() error {
			if have := strings.Join(own(), " "); have != c.want {
				return fmt.Errorf("%s: %s, want %s", c.do, have, c.want)
			}
			return nil
		}, 5*time.Second, "the node's own addresses to be known")
	}
}
