package answer

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	source4, destination4 = "192.0.2.10", "198.51.100.20"
	source6, destination6 = "2001:db8:a::10", "2001:db8:b::20"
)

var stack = []Label{{16, 3, 1}, {1048575, 0, 64}}

func build(list ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, list...); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func ip4(change func(*layers.IPv4)) *layers.IPv4 {
	ip := &layers.IPv4{
		Version: 4, TTL: 7, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
		SrcIP: netip.MustParseAddr(source4).AsSlice(), DstIP: netip.MustParseAddr(destination4).AsSlice(),
	}
	if change != nil {
		change(ip)
	}
	return ip
}

func ip6(change func(*layers.IPv6)) *layers.IPv6 {
	ip := &layers.IPv6{
		Version: 6, HopLimit: 7, NextHeader: layers.IPProtocolUDP,
		SrcIP: netip.MustParseAddr(source6).AsSlice(), DstIP: netip.MustParseAddr(destination6).AsSlice(),
	}
	if change != nil {
		change(ip)
	}
	return ip
}

func udp(bytes int) gopacket.SerializableLayer {
	b := make([]byte, 8+bytes)
	binary.BigEndian.PutUint16(b, 33434)
	binary.BigEndian.PutUint16(b[2:], 33435)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return gopacket.Payload(b)
}

// The answers are read by another implementation than wrote them: that of x/net/icmp, and gopacket.
func TestAnswers(t *testing.T) {
	short4, long4 := build(ip4(nil), udp(20)), build(ip4(nil), udp(1200))
	short6, long6 := build(ip6(nil), udp(20)), build(ip6(nil), udp(1200))
	mayBeCut := build(ip4(func(ip *layers.IPv4) { ip.Flags = 0 }), udp(1200))
	labels := []icmp.Extension{&icmp.MPLSLabelStack{Class: 1, Type: 1, Labels: []icmp.MPLSLabel{
		{Label: 16, TC: 3, TTL: 1}, {Label: 1048575, TTL: 64, S: true},
	}}}
	padded := func(b []byte) []byte { return append(bytes.Clone(b), make([]byte, quoted-len(b))...) }
	exceeded := func(kind icmp.Type, data []byte) icmp.Message {
		return icmp.Message{Type: kind, Body: &icmp.TimeExceeded{Data: data, Extensions: labels}}
	}
	const exceeded4, exceeded6 = ipv4.ICMPTypeTimeExceeded, ipv6.ICMPTypeTimeExceeded
	for name, c := range map[string]struct {
		refused Refused
		want    icmp.Message
		mtu     int // of IPv4
	}{
		"TTL": {Refused{Packet: short4, Labels: stack},
			exceeded(exceeded4, padded(short4)), 0},
		"TTL of a long packet": {Refused{Packet: long4, Labels: stack},
			exceeded(exceeded4, long4[:quoted]), 0},
		"TTL of a packet with padding": {Refused{Packet: append(bytes.Clone(short4), 0xff, 0xff), Labels: stack},
			exceeded(exceeded4, padded(short4)), 0},
		"TTL, fragments allowed": {Refused{Packet: mayBeCut, Labels: stack},
			exceeded(exceeded4, mayBeCut[:quoted]), 0},
		"hop limit": {Refused{Packet: short6, Labels: stack},
			exceeded(exceeded6, padded(short6)), 0},
		"too big": {Refused{Packet: long4, Labels: stack, TooBig: true, MTU: 1492},
			icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: 4,
				Body: &icmp.DstUnreach{Data: long4[:quoted], Extensions: labels}}, 1492},
		"too big, IPv6": {Refused{Packet: long6, Labels: stack, TooBig: true, MTU: 1492},
			icmp.Message{Type: ipv6.ICMPTypePacketTooBig,
				Body: &icmp.PacketTooBig{MTU: 1492, Data: long6[:quoted]}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, ok := Of(c.refused)
			if !ok {
				t.Fatal("there is no answer")
			}
			from, to, protocol := netip.MustParseAddr("192.0.2.1"), source4, 1
			if a.Is6() {
				from, to, protocol = netip.MustParseAddr("2001:db8::1"), source6, 58
			}
			if a.To.String() != to {
				t.Errorf("it is for %s", a.To)
			}
			whole, err := a.Packet(from)
			if err != nil {
				t.Fatal(err)
			}
			p := gopacket.NewPacket(whole, map[bool]gopacket.LayerType{
				false: layers.LayerTypeIPv4, true: layers.LayerTypeIPv6}[a.Is6()], gopacket.Default)
			if fail := p.ErrorLayer(); fail != nil {
				t.Fatal(fail.Error())
			}
			if l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
				if err := l.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
					t.Fatal(err)
				}
			}
			if err, wrong := p.VerifyChecksums(); err != nil || len(wrong) > 0 {
				t.Errorf("checksums: %v, %v", err, wrong)
			}
			flow := p.NetworkLayer().NetworkFlow()
			if flow.Src().String() != from.String() || flow.Dst().String() != to {
				t.Errorf("it goes %s", flow)
			}
			message := p.NetworkLayer().LayerPayload()
			have, err := icmp.ParseMessage(protocol, message)
			if err != nil {
				t.Fatal(err)
			}
			c.want.Checksum = have.Checksum
			if diff := cmp.Diff(&c.want, have); diff != "" {
				t.Errorf("-want +have:\n%s", diff)
			}
			if mtu := int(binary.BigEndian.Uint16(message[6:])); c.mtu != 0 && mtu != c.mtu {
				t.Errorf("the MTU is %d", mtu)
			}
			alone, err := a.Message()
			if err != nil {
				t.Fatal(err)
			}
			if a.Is6() {
				copy(alone[2:4], message[2:4])
			}
			if !bytes.Equal(alone, message) {
				t.Errorf("alone, it is %x, not %x", alone, message)
			}
		})
	}
}

func icmp4(kind uint8) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		ip4(func(ip *layers.IPv4) { ip.Protocol = layers.IPProtocolICMPv4 }),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0)}, gopacket.Payload(make([]byte, 40)),
	}
}

// icmp6 is behind so many headers of eight bytes, of this kind.
func icmp6(kind uint8, header layers.IPProtocol, headers int) []byte {
	next := layers.IPProtocolICMPv6
	var body []byte
	for range headers {
		body = append([]byte{byte(next), 0, 1, 4, 0, 0, 0, 0}, body...) // PadN
		if header == layers.IPProtocolIPv6Fragment {
			copy(body[1:], make([]byte, 7))
		}
		next = header
	}
	body = append(body, kind, 0, 0, 0, 0, 0, 0, 0)
	body = append(body, make([]byte, 40)...)
	return build(ip6(func(ip *layers.IPv6) { ip.NextHeader = next }), gopacket.Payload(body))
}

func TestWhatGetsNoAnswer(t *testing.T) {
	from4 := func(a string) []byte {
		return build(ip4(func(ip *layers.IPv4) { ip.SrcIP = netip.MustParseAddr(a).AsSlice() }), udp(20))
	}
	to4 := func(a string) []byte {
		return build(ip4(func(ip *layers.IPv4) { ip.DstIP = netip.MustParseAddr(a).AsSlice() }), udp(20))
	}
	from6 := func(a string) []byte {
		return build(ip6(func(ip *layers.IPv6) { ip.SrcIP = netip.MustParseAddr(a).AsSlice() }), udp(20))
	}
	const hopByHop, options, fragment = layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Destination,
		layers.IPProtocolIPv6Fragment
	to6 := build(ip6(func(ip *layers.IPv6) { ip.DstIP = netip.MustParseAddr("ff0e::1").AsSlice() }), udp(20))
	for name, c := range map[string]struct {
		packet       []byte
		time, tooBig bool // has an answer
	}{
		"ordinary":                   {build(ip4(nil), udp(20)), true, true},
		"ordinary, IPv6":             {build(ip6(nil), udp(20)), true, true},
		"echo":                       {build(icmp4(8)...), true, true},
		"echo reply":                 {build(icmp4(0)...), true, true},
		"timestamp":                  {build(icmp4(13)...), true, true},
		"unreachable":                {build(icmp4(3)...), false, false},
		"redirect":                   {build(icmp4(5)...), false, false},
		"time exceeded":              {build(icmp4(11)...), false, false},
		"unknown ICMP":               {build(icmp4(77)...), false, false},
		"echo, IPv6":                 {icmp6(128, 0, 0), true, true},
		"echo behind an option":      {icmp6(128, hopByHop, 1), true, true},
		"echo behind two headers":    {icmp6(128, options, 2), true, true},
		"time exceeded, IPv6":        {icmp6(3, 0, 0), false, false},
		"error behind an option":     {icmp6(3, hopByHop, 1), false, false},
		"error behind options":       {icmp6(3, options, 1), false, false},
		"error behind two headers":   {icmp6(3, options, 2), false, false},
		"first fragment of an error": {icmp6(3, fragment, 1), false, false},
		"redirect, IPv6":             {icmp6(137, 0, 0), false, false},
		"cut off before it is known": {icmp6(128, options, 1)[:48], false, false},
		"cut off within options":     {icmp6(128, options, 1)[:44], false, false},
		"first fragment": {build(ip4(func(ip *layers.IPv4) {
			ip.Flags |= layers.IPv4MoreFragments
		}), udp(20)), true, true},
		"another fragment":          {build(ip4(func(ip *layers.IPv4) { ip.FragOffset = 3 }), udp(20)), false, false},
		"may be fragmented":         {build(ip4(func(ip *layers.IPv4) { ip.Flags = 0 }), udp(20)), true, false},
		"from nowhere":              {from4("0.0.0.0"), false, false},
		"from this network":         {from4("0.1.2.3"), false, false},
		"from loopback":             {from4("127.0.0.1"), false, false},
		"from a group":              {from4("224.0.0.5"), false, false},
		"from class E":              {from4("240.0.0.1"), false, false},
		"from broadcast":            {from4("255.255.255.255"), false, false},
		"to a group":                {to4("239.1.1.1"), false, false},
		"to broadcast":              {to4("255.255.255.255"), false, false},
		"from nowhere, IPv6":        {from6("::"), false, false},
		"from loopback, IPv6":       {from6("::1"), false, false},
		"from a group, IPv6":        {from6("ff02::5"), false, false},
		"from link-local":           {from6("fe80::1"), false, false},
		"from IPv4-mapped":          {from6("::ffff:192.0.2.1"), false, false},
		"to a group, IPv6":          {to6, false, true}, // RFC 4443, 2.4 (e.3)
		"nothing":                   {nil, false, false},
		"neither":                   {[]byte{0x50, 0, 0}, false, false},
		"half a header":             {build(ip4(nil), udp(20))[:19], false, false},
		"half a header, IPv6":       {build(ip6(nil), udp(20))[:39], false, false},
		"a header of sixteen bytes": {append([]byte{0x44}, build(ip4(nil), udp(20))[1:]...), false, false},
	} {
		if _, is := Of(Refused{Packet: c.packet, Labels: stack}); is != c.time {
			t.Errorf("%s: time exceeded: %v", name, is)
		}
		if _, is := Of(Refused{Packet: c.packet, Labels: stack, TooBig: true, MTU: 1492}); is != c.tooBig {
			t.Errorf("%s: too big: %v", name, is)
		}
		if _, is := Of(Refused{Packet: c.packet, Labels: stack, TooBig: true, MTU: 4}); is {
			t.Errorf("%s: too big for an MTU that cannot be", name)
		}
	}
}

// A node of a slice chooses all of it.
func FuzzAnswer(f *testing.F) {
	f.Add(build(ip4(nil), udp(20)), false)
	f.Add(build(ip6(nil), udp(20)), true)
	f.Add(build(icmp4(8)...), true)
	f.Add(icmp6(128, layers.IPProtocolIPv6HopByHop, 1), false)
	f.Add(icmp6(3, layers.IPProtocolIPv6Fragment, 2), true)
	f.Fuzz(func(t *testing.T, packet []byte, tooBig bool) {
		a, ok := Of(Refused{Packet: packet, TooBig: tooBig, MTU: 1492, Labels: stack})
		if !ok {
			return
		}
		from := netip.MustParseAddr("192.0.2.1")
		if a.Is6() {
			from = netip.MustParseAddr("2001:db8::1")
		}
		whole, err := a.Packet(from)
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := Of(Refused{Packet: whole, Labels: stack}); ok {
			t.Errorf("an answer is answered: %+v", again)
		}
	})
}
