package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	classVoice = 0x10010
	classBulk  = 0x10011
	classNone  = 0
)

// packet4 is an IPv4 packet from 192.0.2.1 to 198.51.100.2 in a frame.
func packet4(tos, protocol byte, fragment, sport, dport uint16) []byte {
	f := ethernet(macB, macA, 0x0800, 14+20+8)
	ip := f[14:]
	copy(ip, []byte{0x45, tos, 0, 28, 0, 0, byte(fragment >> 8), byte(fragment), 64, protocol, 0, 0, 192, 0, 2, 1,
		198, 51, 100, 2})
	binary.BigEndian.PutUint16(ip[20:], sport)
	binary.BigEndian.PutUint16(ip[22:], dport)
	return f
}

// packet6 is an IPv6 packet from 2001:db8::1 to 2001:db8:1::2.
func packet6(class, protocol byte, sport, dport uint16) []byte {
	f := ethernet(macB, macA, 0x86dd, 14+40+8)
	ip := f[14:]
	from, to := netip.MustParseAddr("2001:db8::1").As16(), netip.MustParseAddr("2001:db8:1::2").As16()
	copy(ip, []byte{0x60 | class>>4, class << 4, 0, 0, 0, 8, protocol, 64})
	copy(ip[8:], from[:])
	copy(ip[24:], to[:])
	binary.BigEndian.PutUint16(ip[40:], sport)
	binary.BigEndian.PutUint16(ip[42:], dport)
	return f
}

func TestRulesChooseTheClass(t *testing.T) {
	const tcp, udp, icmp, ef = 6, 17, 1, 46
	at := netip.MustParsePrefix
	rule := func(edit func(*Rule)) []Rule {
		r := Rule{classVoice, Match{DSCP: -1}}
		edit(&r)
		return []Rule{r}
	}
	plain := packet4(0, udp, 0, 1000, 5001)
	cases := map[string]struct {
		rules []Rule
		frame []byte
		want  uint32
	}{
		"no rules":             {nil, plain, classNone},
		"all":                  {rule(func(*Rule) {}), plain, classVoice},
		"DSCP":                 {rule(func(r *Rule) { r.DSCP = ef }), packet4(ef<<2|1, udp, 0, 1, 2), classVoice},
		"another DSCP":         {rule(func(r *Rule) { r.DSCP = ef }), plain, classNone},
		"DSCP 0":               {rule(func(r *Rule) { r.DSCP = 0 }), plain, classVoice},
		"DSCP of IPv6":         {rule(func(r *Rule) { r.DSCP = ef }), packet6(ef<<2, udp, 1, 2), classVoice},
		"protocol":             {rule(func(r *Rule) { r.Protocol = udp }), plain, classVoice},
		"another protocol":     {rule(func(r *Rule) { r.Protocol = tcp }), plain, classNone},
		"source":               {rule(func(r *Rule) { r.Source = at("192.0.2.0/24") }), plain, classVoice},
		"another source":       {rule(func(r *Rule) { r.Source = at("192.0.3.0/24") }), plain, classNone},
		"destination":          {rule(func(r *Rule) { r.Destination = at("198.51.100.2/32") }), plain, classVoice},
		"IPv4 alone":           {rule(func(r *Rule) { r.Destination = at("0.0.0.0/0") }), packet6(0, udp, 1, 2), classNone},
		"any IPv4":             {rule(func(r *Rule) { r.Destination = at("0.0.0.0/0") }), plain, classVoice},
		"IPv6 destination":     {rule(func(r *Rule) { r.Destination = at("2001:db8:1::/48") }), packet6(0, udp, 1, 2), classVoice},
		"IPv6 elsewhere":       {rule(func(r *Rule) { r.Destination = at("2001:db8:2::/48") }), packet6(0, udp, 1, 2), classNone},
		"IPv6 host":            {rule(func(r *Rule) { r.Source = at("2001:db8::1/128") }), packet6(0, udp, 1, 2), classVoice},
		"destination port":     {rule(func(r *Rule) { r.DestinationPorts = PortRange{5001, 5001} }), plain, classVoice},
		"port of the source":   {rule(func(r *Rule) { r.DestinationPorts = PortRange{1000, 1000} }), plain, classNone},
		"source port":          {rule(func(r *Rule) { r.SourcePorts = PortRange{999, 1001} }), plain, classVoice},
		"either port":          {rule(func(r *Rule) { r.AnyPort = PortRange{5000, 5001} }), plain, classVoice},
		"either, the source":   {rule(func(r *Rule) { r.AnyPort = PortRange{1000, 1000} }), plain, classVoice},
		"neither port":         {rule(func(r *Rule) { r.AnyPort = PortRange{5002, 6000} }), plain, classNone},
		"port of IPv6":         {rule(func(r *Rule) { r.DestinationPorts = PortRange{2, 2} }), packet6(0, tcp, 1, 2), classVoice},
		"no ports in ICMP":     {rule(func(r *Rule) { r.AnyPort = PortRange{0, 65535} }), packet4(0, icmp, 0, 1000, 5001), classNone},
		"a fragment's ports":   {rule(func(r *Rule) { r.AnyPort = PortRange{5001, 5001} }), packet4(0, udp, 0x2000, 1000, 5001), classNone},
		"a fragment's address": {rule(func(r *Rule) { r.Source = at("192.0.2.1/32") }), packet4(0, udp, 0x20, 1, 2), classVoice},
		"DF is no fragment":    {rule(func(r *Rule) { r.AnyPort = PortRange{5001, 5001} }), packet4(0, udp, 0x4000, 1000, 5001), classVoice},
		"no IP":                {rule(func(*Rule) {}), ethernet(macB, macA, 0x88b5, 64), classNone},
		"the first that matches": {
			[]Rule{{classBulk, Match{DSCP: -1, Protocol: tcp}},
				{classVoice, Match{DSCP: -1, Protocol: udp}}, {classBulk, Match{DSCP: -1}}},
			plain, classVoice,
		},
	}
	inWorld(t, func(w *world) {
		a, b := w.bench.a, w.bench.b
		w.check(w.d.Set(a, Port{Mode: Queue, Peer: b, MTU: 1500, MAC: macA, Classified: true}))
		w.check(w.d.Set(b, Port{Mode: Peer, Peer: a, MTU: 1500, MAC: macB}))
		for name, c := range cases {
			w.check(w.d.SetRules(a, c.rules))
			back, err := w.d.Rules(a)
			w.check(err)
			if diff := cmp.Diff(c.rules, back, cmpopts.EquateComparable(netip.Prefix{}),
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: rules are read back otherwise: -want +got\n%s", name, diff)
			}
			if have := w.priority(a, c.frame); have != c.want {
				t.Errorf("%s: class %x, want %x", name, have, c.want)
			}
		}
		// A port that is not classified does not ask.
		w.check(w.d.Set(a, Port{Mode: Queue, Peer: b, MTU: 1500, MAC: macA}))
		w.check(w.d.SetRules(a, rule(func(*Rule) {})))
		if have := w.priority(a, plain); have != classNone {
			t.Errorf("without the flag: class %x", have)
		}
	})
}

// priority is the one that a frame leaves with that a node sends at a port.
func (w *world) priority(port int, frame []byte) uint32 {
	w.Helper()
	return w.priorityBy(w.d.programs.PortIngress, port, frame)
}

// priorityBy is the one that a frame leaves with that a program has seen at a device.
func (w *world) priorityBy(p *ebpf.Program, device int, frame []byte) uint32 {
	w.Helper()
	type skb struct { // struct __sk_buff (linux/bpf.h)
		_        [8]uint32
		Priority uint32
		_        uint32
		Ifindex  uint32
		_        [37]uint32
	}
	var out skb
	verdict, err := p.Run(&ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb{Ifindex: uint32(device)},
		ContextOut: &out,
	})
	w.check(err)
	if verdict != verdictRedirect {
		w.Errorf("verdict %d, want a redirect", verdict)
	}
	return out.Priority
}
