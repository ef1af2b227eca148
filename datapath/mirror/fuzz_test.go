package mirror

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Any bytes: no panic, and no more than an error.
func FuzzMessages(f *testing.F) {
	gateway := path{link: 1, gateway: netip.MustParseAddr("192.168.0.1"), weight: 1}
	single := kroute{prefix: netip.MustParsePrefix("10.0.0.0/8"), table: 254, kind: 1, paths: []path{gateway}}
	several := kroute{prefix: netip.MustParsePrefix("2001:db8::/32"), table: 254, kind: 1,
		paths: []path{gateway, {link: 2, weight: 9}}}
	for _, m := range []rtnl.Message{
		single.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE), several.message(unix.RTM_NEWROUTE,
			unix.NLM_F_APPEND),
		single.message(unix.RTM_DELROUTE, 0), several.message(unix.RTM_DELROUTE, 0),
		linkMessage(unix.RTM_NEWLINK, 1, true), linkMessage(unix.RTM_DELLINK, 1, false),
		addressMessage(unix.RTM_NEWADDR, 1, gateway.gateway), addressMessage(unix.RTM_DELADDR, 1,
			gateway.gateway),
		netlinkMessage(unix.RTM_NEWNEXTHOP, 0, append(make([]byte, sizeofNHMsg), rtnl.U32(unix.NHA_ID, 7)...)),
		netlinkMessage(unix.RTM_NEWNEIGH, 0, append(make([]byte, unix.SizeofNdMsg),
			rtnl.Bytes(unix.NDA_DST, []byte{10, 0, 0, 1})...)),
		netlinkMessage(unix.RTM_NEWNETCONF, 0, append([]byte{unix.AF_INET, 0, 0, 0},
			rtnl.U32(netconfForwarding, 1)...)),
	} {
		f.Add(encode(m), encode(m))
	}
	f.Fuzz(func(_ *testing.T, dumped, maps []byte) {
		v := newView(newMemory(), map[int]int{1: 101, 2: 102})
		v.links.live = true
		v.begin()
		feed(dumped, v.confirm)
		for p := range parts {
			_ = v.sweep(p)
		}
		_ = v.end()
		feed(maps, func(m rtnl.Message) error { return v.event(m, parts) })
	})
}

func feed(b []byte, f func(rtnl.Message) error) {
	for len(b) > 0 {
		m, rest, err := rtnl.NextMessage(b)
		if err != nil {
			return
		}
		_ = f(m)
		b = rest
	}
}
