package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/node"
)

// answering sends what came in a UDP packet back to its sender, with the sender's port before it, and obeys other
// frames: the address and the port behind the Ethernet header are where the rest goes.
const answering = `
struct order {
	uint32_t address;
	uint16_t port;
	uint8_t mapped, interface;
};

PERGOLA_PARSE(packet)
{
	uint16_t *first = pergola_header(packet, 14, uint16_t);
	struct order *to = pergola_header(packet, 14, struct order);
	int verdict;

	if (packet->outer_port) {
		*first = pergola_htons(packet->outer_port);
		return pergola_send_udp(packet, packet->interface, *(uint32_t *)(packet->outer_address + 12),
					pergola_htons(packet->outer_port));
	}
	verdict = pergola_send_udp(packet, to->interface, to->address, to->port);
	if (!to->mapped)
		packet->address[10] = 0;
	return verdict;
}`

// datagram is a UDP packet in a frame.
type datagram struct {
	from, to       netip.AddrPort
	macFrom, macTo [6]byte
	payload        []byte
	change         func(ip, udp []byte) // before the checksum
}

func (d datagram) bytes() []byte {
	ip := make([]byte, 20, 64)
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(d.payload)))
	copy(ip[12:], d.from.Addr().AsSlice())
	copy(ip[16:], d.to.Addr().AsSlice())
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp[0:], d.from.Port())
	binary.BigEndian.PutUint16(udp[2:], d.to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(d.payload)))
	if d.change != nil {
		d.change(ip, udp)
	}
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return slices.Concat(d.macTo[:], d.macFrom[:], []byte{8, 0}, ip, udp, d.payload)
}

const udpPort = 5610

// withUDP makes a node with a packet program and a UDP port, its second interface.
func (w *world) withUDP(n *node.Nodes, text string) node.Node {
	x := made(w.compile(text), w.port(mac(1)), 0)
	x.UDP = []node.UDPPort{{Interface: 2, Local: here4, Port: udpPort, Rate: 1 << 30,
		Peers: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("224.0.0.0/3")}}}
	w.check(n.Set("x", x))
	return x
}

// asked is what the machine's neighbour sends to the port, and its answer.
func asked(payload []byte) (came, answer datagram) {
	local, peer := netip.AddrPortFrom(here4, udpPort), netip.AddrPortFrom(there4, 40000)
	changed := slices.Clone(payload)
	copy(changed, binary.BigEndian.AppendUint16(nil, peer.Port()))
	return datagram{from: peer, to: local, macFrom: macThere, macTo: macHere, payload: payload},
		datagram{from: local, to: peer, payload: changed}
}

// What comes to a UDP port goes through the program, and out again, by tc.
func TestUDPPortsLeadToPacketPrograms(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.withUDP(n, answering)
		for _, length := range []int{0, 1, 2, 5, 11, 12, 19, 20, 21, 40, 300, 1400, 1472} {
			payload := make([]byte, length)
			for i := range payload {
				payload[i] = byte(i)
			}
			came, answer := asked(payload)
			for _, padding := range []int{0, 18} {
				frame := append(came.bytes(), make([]byte, padding)...)
				w.expect(w.run(w.d.programs.UnderlayIngress, w.a, frame), verdictRedirect, frame,
					map[string]uint64{})
				w.expect(w.receive(frame), verdictRedirect, answer.bytes(), map[string]uint64{})
			}
			routed := answer
			routed.macFrom, routed.macTo = macHere, macThere
			w.expect(w.run(w.d.programs.UnderlayEgress, w.b, answer.bytes()), verdictRedirect,
				routed.bytes(), map[string]uint64{})
		}
		if c := counted(n, "x"); c["verdict udp"] != c["frames in"] || c["verdict udp"] != 26 {
			w.Errorf("counted %v", c)
		}
		came, _ := asked(nil)
		if have := w.priorityBy(w.d.programs.UplinkIngress, w.b, came.bytes()); have != FirstCardClass+slice {
			w.Errorf("it leaves in class %x", have)
		}
		w.check(n.Delete("x"))
		w.expect(w.run(w.d.programs.UnderlayIngress, w.a, came.bytes()), verdictNext, came.bytes(),
			map[string]uint64{})
	})
}

// The same by the line card, which hands the answer over.
func TestTunnelCardTakesWhatIsForUDPPorts(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.withUDP(n, answering)
		came, answer := asked([]byte("0123456789"))
		w.expect(w.card(came.bytes()), xdpPass, came.bytes(), map[string]uint64{}) // nothing takes over
		w.handOver(true)
		for _, padding := range []int{0, 8} {
			frame := append(came.bytes(), make([]byte, padding)...)
			w.expect(w.card(frame), xdpRedirect, handedOver(answer.bytes(), slice, handsUDP|1<<8, 0),
				map[string]uint64{})
		}
	})
}

// The kernel has what is for no UDP port, and what is in fragments or has options. What is not in order is dropped.
func TestUDPPortsTakeWhatIsInOrder(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.withUDP(n, answering)
		w.handOver(true)
		for name, c := range map[string]struct {
			edit    func(d *datagram)
			ours    bool
			dropped string
		}{
			"other port":    {edit: func(d *datagram) { d.to = netip.AddrPortFrom(here4, 5611) }},
			"other address": {edit: func(d *datagram) { d.to = netip.AddrPortFrom(third4, udpPort) }},
			"first fragment": {edit: func(d *datagram) {
				d.change = func(ip, _ []byte) { ip[6] = 0x20 }
			}},
			"later fragment": {edit: func(d *datagram) {
				d.change = func(ip, _ []byte) { ip[6], ip[7] = 0, 100 }
			}},
			"TCP": {edit: func(d *datagram) { d.change = func(ip, _ []byte) { ip[9] = 6 } }},
			"options": {edit: func(d *datagram) {
				d.change = func(ip, _ []byte) { ip[0] = 0x46 }
			}},
			"short length": {ours: true, dropped: "malformed", edit: func(d *datagram) {
				d.change = func(_, udp []byte) { udp[5]-- }
			}},
			"longer than the frame": {ours: true, dropped: "malformed", edit: func(d *datagram) {
				d.change = func(ip, udp []byte) { ip[2]++; udp[4]++ }
			}},
			"no header": {ours: true, dropped: "malformed", edit: func(d *datagram) {
				d.change = func(ip, udp []byte) { ip[3], udp[5] = 27, 7 }
			}},
			"from port 0": {ours: true, dropped: "malformed", edit: func(d *datagram) {
				d.from = netip.AddrPortFrom(there4, 0)
			}},
		} {
			w.name = name
			came, _ := asked([]byte("0123456789"))
			c.edit(&came)
			frame, verdict := came.bytes(), uint32(verdictNext)
			if c.ours {
				verdict = verdictRedirect
			}
			w.expect(w.card(frame), xdpPass, frame, map[string]uint64{})
			w.expect(w.run(w.d.programs.UnderlayIngress, w.a, frame), verdict, frame, map[string]uint64{})
			if c.ours {
				w.expect(w.receive(frame), verdictShot, frame, map[string]uint64{c.dropped: 1})
			}
		}
		if c := counted(n, "x"); c["frames in"] != 0 {
			w.Errorf("the program saw %v", c)
		}
	})
}

// A program sends from its own port alone, to where it may, and so much.
func TestPacketProgramsSendUDPWhereTheyMay(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		x := w.withUDP(n, answering)
		w.join(w.a, x.Interfaces[0])
		to := func(addr string, port uint16, mapped, iface byte) []byte {
			f := ethernet(mac(1), macA, 0x88b5, 40)
			copy(f[14:], netip.MustParseAddr(addr).AsSlice())
			binary.BigEndian.PutUint16(f[18:], port)
			f[20], f[21] = mapped, iface
			return f
		}
		for name, c := range map[string]struct {
			frame []byte
			count string
		}{
			"peer":              {to("203.0.113.9", 53, 1, 2), "verdict udp"},
			"by the first port": {to("10.9.9.9", 53, 1, 0), "verdict udp"},
			"by a link":         {to("203.0.113.9", 53, 1, 1), "fault no udp"},
			"by no interface":   {to("203.0.113.9", 53, 1, 200), "fault no udp"},
			"no peer":           {to("198.51.100.1", 53, 1, 2), "fault no peer"},
			"port 0":            {to("203.0.113.9", 0, 1, 2), "fault no peer"},
			"tunnels":           {to("203.0.113.9", 4789, 1, 2), "fault no peer"},
			"itself":            {to(here4.String(), 53, 1, 2), "fault no peer"},
			"multicast":         {to("224.0.0.1", 53, 1, 2), "fault no peer"},
			"broadcast":         {to("255.255.255.255", 53, 1, 2), "fault no peer"},
			"IPv6":              {to("203.0.113.9", 53, 0, 2), "fault no peer"},
		} {
			w.name = name
			before := must(n.Counters("x"))[c.count]
			o := w.send(c.frame, skbuff{})
			if must(n.Counters("x"))[c.count] != before+1 {
				w.Errorf("counted %v", counted(n, "x"))
			}
			if sent := c.count == "verdict udp"; sent != (o.Verdict == verdictRedirect) {
				w.Errorf("verdict %d", o.Verdict)
			} else if sent && [4]byte(o.Frame[26:30]) != here4.As4() {
				w.Errorf("source %v", o.Frame[26:30])
			}
		}
		w.name = "rate"
		x.UDP[0].Rate, x.Digest = 1000, "slow"
		w.check(n.Set("x", x))
		for range 20 {
			w.send(to("203.0.113.9", 53, 1, 2), skbuff{})
		}
		if c := counted(n, "x"); c["fault udp rate"] < 15 {
			w.Errorf("counted %v", c)
		}
	})
}

// Two nodes do not have one port, and what a process that was killed left leads nowhere.
func TestUDPPortsHaveOneOwner(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		n := must(node.Open(w.d.Nodes()))
		x := w.withUDP(n, answering)
		x.Interfaces = nil
		if err := n.Set("y", x); err == nil {
			w.Errorf("two nodes have port %d", udpPort)
		}
		stray := objectUdpName{Local: binary.NativeEndian.Uint32(here4.AsSlice()), Port: 1}
		w.check(w.d.maps.UdpOwners.Put(stray, objectUdpOwner{Node: 1, Interface: 1}))
		w.check(n.Close())
		n = must(node.Open(w.d.Nodes()))
		defer w.end(n)
		if err := w.d.maps.UdpOwners.Lookup(stray, &objectUdpOwner{}); err == nil {
			w.Errorf("a stray port stayed: %v", err)
		}
		came, answer := asked([]byte("still there"))
		w.expect(w.receive(came.bytes()), verdictRedirect, answer.bytes(), map[string]uint64{})
		var name objectUdpName
		w.check(w.d.maps.UdpOwners.NextKey(nil, &name))
		// An owner that has no such interface: the program refuses it, and the next frame is as any.
		w.check(w.d.maps.UdpOwners.Put(name, objectUdpOwner{Node: 1, Interface: 1}))
		if o := w.receive(came.bytes()); o.Verdict != verdictShot {
			w.Errorf("by an interface that is no UDP port: %v", o)
		}
		w.check(w.d.maps.UdpOwners.Update(name, objectUdpOwner{Node: 7, Interface: 2}, ebpf.UpdateExist))
		w.expect(w.receive(came.bytes()), verdictShot, slices.Concat(make([]byte, 14), came.payload),
			map[string]uint64{"no program": 1})
	})
}
