package mirror

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Of an address, its broadcast addresses count as the node's own, too, until the last that has them is gone.
func TestOwnAddresses(t *testing.T) {
	m := newMemory()
	as := addresses{out: m, all: map[addressKey]uint32{}, own: map[netip.Addr]int{}, on: map[netip.Addr]int{}}
	key := func(prefix, broadcast string) addressKey {
		k := addressKey{link: 1, prefix: netip.MustParsePrefix(prefix)}
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
