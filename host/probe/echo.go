package probe

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/pergola-net/pergola/kernel/netns"
)

// echoSocket sends ICMP echo requests of one family from within a node and hears what comes back: replies, and errors
// that routers report about its requests. A raw socket hears everybody's: identifier and token tell ours.
type echoSocket struct {
	conn  *net.IPConn
	ipv6  bool
	id    uint16
	token [8]byte // the payload begins with it
}

// answer is what came back for one request.
type answer struct {
	from  netip.Addr
	seq   uint16
	reply bool   // an echo reply; else an error
	spent bool   // the error is that the hop limit was used up
	cause string // of another error, for a person
	at    time.Time
}

// Numbers of the protocols, as golang.org/x/net/icmp wants them.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// echoBuffer holds the replies of a thousand targets that answer at once.
const echoBuffer = 4 << 20

// openEcho opens the socket inside the node's namespace; it is used from outside.
func openEcho(pid int, source netip.Addr, isIPv6 bool) (*echoSocket, error) {
	s := &echoSocket{ipv6: isIPv6}
	var random [10]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("choose an ICMP identifier: %w", err)
	}
	s.id = binary.BigEndian.Uint16(random[:])
	copy(s.token[:], random[2:])
	network := "ip4:icmp"
	if isIPv6 {
		network = "ip6:ipv6-icmp"
	}
	err := netns.Do(netns.Path(pid), func() (err error) {
		s.conn, err = net.ListenIP(network, &net.IPAddr{IP: source.AsSlice(), Zone: source.Zone()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open an ICMP socket in process %d: %w", pid, err)
	}
	if err := s.tune(); err != nil {
		_ = s.conn.Close()
		return nil, fmt.Errorf("set up an ICMP socket in process %d: %w", pid, err)
	}
	return s, nil
}

// tune lets the kernel drop what is not for us, first of all other processes' requests.
func (s *echoSocket) tune() error {
	if err := s.conn.SetReadBuffer(echoBuffer); err != nil {
		return err
	}
	if s.ipv6 {
		var f ipv6.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv6.ICMPTypeEchoReply)
		f.Accept(ipv6.ICMPTypeDestinationUnreachable)
		f.Accept(ipv6.ICMPTypePacketTooBig)
		f.Accept(ipv6.ICMPTypeTimeExceeded)
		return ipv6.NewPacketConn(s.conn).SetICMPFilter(&f)
	}
	var f ipv4.ICMPFilter
	f.SetAll(true)
	f.Accept(ipv4.ICMPTypeEchoReply)
	f.Accept(ipv4.ICMPTypeDestinationUnreachable)
	f.Accept(ipv4.ICMPTypeTimeExceeded)
	return ipv4.NewPacketConn(s.conn).SetICMPFilter(&f)
}

// hopLimit sets the TTL of the requests that follow.
func (s *echoSocket) hopLimit(n int) error {
	if s.ipv6 {
		return ipv6.NewPacketConn(s.conn).SetHopLimit(n)
	}
	return ipv4.NewPacketConn(s.conn).SetTTL(n)
}

// send sends one request.
func (s *echoSocket) send(target netip.Addr, seq uint16) error {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(s.id), Seq: int(seq), Data: s.token[:]}}
	if s.ipv6 {
		m.Type = ipv6.ICMPTypeEchoRequest // the kernel writes the checksum
	}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	_, err = s.conn.WriteToIP(b, &net.IPAddr{IP: target.AsSlice(), Zone: target.Zone()})
	return err
}

// listen delivers answers until the socket is closed; then it closes the channel.
func (s *echoSocket) listen(answers chan<- answer) {
	defer close(answers)
	b := make([]byte, 2048)
	for {
		n, from, err := s.conn.ReadFromIP(b)
		if err != nil {
			return
		}
		a, ok := s.parse(b[:n])
		if !ok {
			continue
		}
		a.at = time.Now()
		addr, _ := netip.AddrFromSlice(from.IP)
		a.from = addr.Unmap()
		answers <- a
	}
}

// parse reads a message; ok is false for what does not answer one of our requests.
func (s *echoSocket) parse(b []byte) (a answer, ok bool) {
	proto := protoICMP
	if s.ipv6 {
		proto = protoICMPv6
	}
	m, err := icmp.ParseMessage(proto, b)
	if err != nil {
		return answer{}, false
	}
	switch body := m.Body.(type) {
	case *icmp.Echo:
		a.seq, a.reply = uint16(body.Seq), true
		return a, body.ID == int(s.id) && bytes.HasPrefix(body.Data, s.token[:])
	case *icmp.TimeExceeded:
		a.spent = true
		a.cause = "its hop limit was used up: a loop, or too long a path"
		return s.quoted(a, body.Data)
	case *icmp.DstUnreach:
		a.cause = unreachable(s.ipv6, m.Code)
		return s.quoted(a, body.Data)
	case *icmp.PacketTooBig:
		a.cause = fmt.Sprintf("packet too big for a link of MTU %d", body.MTU)
		return s.quoted(a, body.Data)
	}
	return answer{}, false
}

// quoted reads the packet that an error quotes: its IP header and the first eight bytes behind it.
func (s *echoSocket) quoted(a answer, b []byte) (answer, bool) {
	header := ipv6.HeaderLen
	if !s.ipv6 {
		if len(b) == 0 {
			return a, false
		}
		header = int(b[0]&0xf) * 4
	}
	const idAt, seqAt, end = 4, 6, 8
	if len(b) < header+end {
		return a, false
	}
	b = b[header:]
	a.seq = binary.BigEndian.Uint16(b[seqAt:])
	return a, binary.BigEndian.Uint16(b[idAt:]) == s.id
}

// unreachable words the codes of RFC 792, RFC 1812 and RFC 4443.
func unreachable(isIPv6 bool, code int) string {
	words := map[int]string{
		0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable",
		4: "fragmentation needed", 9: "network prohibited", 10: "host prohibited",
		13: "communication prohibited",
	}
	if isIPv6 {
		words = map[int]string{
			0: "no route to destination", 1: "communication prohibited",
			2: "beyond scope of source address",
			3: "address unreachable", 4: "port unreachable", 5: "source address failed policy",
			6: "reject route",
		}
	}
	if w, ok := words[code]; ok {
		return w
	}
	return fmt.Sprintf("destination unreachable (code %d)", code)
}
