package unwalked

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	patience = 10 * time.Second

	space   = 7
	port    = 40 // of the interface that packets come by, as the substrate knows it,
	noOther = 41 // and of one without addresses
)

// node is a router's namespace, with a process that holds it.
type node struct {
	fastpath.Router
	inside int // ifindex of port
	ns     *os.File
}

// newNode makes one. Its own addresses stand for the sources to which it has a route.
func newNode(t testing.TB) *node {
	t.Helper()
	testkit.Root(t)
	n := &node{}
	err := netns.New(func() error {
		out, err := exec.Command("sh", "-ec", `ip link set lo up
			ip link add e0 type veth peer name e1
			ip link set e0 up; ip link set e1 up
			ip address add 192.0.2.1/24 dev e0; ip address add 192.0.2.9/24 dev e0
			ip address add 2001:db8:1::1/64 dev e0 nodad
			ip address add 198.51.100.10/32 dev lo
			ip address add 2001:db8:2::10/128 dev lo nodad`).CombinedOutput()
		if err != nil {
			return errors.New(string(out))
		}
		if n.ns, err = netns.Here(); err != nil {
			return err
		}
		e0, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		e1, err := net.InterfaceByName("e1")
		if err != nil {
			return err
		}
		holder := exec.Command("sleep", "600")
		if err := holder.Start(); err != nil {
			return err
		}
		t.Cleanup(func() {
			_ = holder.Process.Kill()
			_ = holder.Wait()
			_ = n.ns.Close()
		})
		n.inside = e0.Index
		n.Router = fastpath.Router{
			Slice: 1, PID: holder.Process.Pid, Legs: map[int]int{e0.Index: port, e1.Index: noOther},
			Labels: mirror.Labels{Space: space},
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	n.NetNS = st.Ino
	return n
}

// listen hears ICMP that comes to an address of the node's.
func (n *node) listen(t *testing.T, network, address string) *net.IPConn {
	t.Helper()
	var c net.PacketConn
	err := netns.In(n.ns, func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(t.Context(), network, address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.IPConn)
}

// path is a data path of packets that a test makes up.
type path struct {
	machine.DataPath
	packets chan datapath.Unwalked
	closed  chan struct{}
	sent    []sent
	refuse  error
}

type sent struct {
	Port int
	IP   []byte
}

func newPath() *path {
	return &path{packets: make(chan datapath.Unwalked), closed: make(chan struct{})}
}

func (p *path) ReadUnwalked() (machine.UnwalkedReader, error) { return p, p.refuse }

func (p *path) Read() (datapath.Unwalked, error) {
	select {
	case u := <-p.packets:
		return u, nil
	case <-p.closed:
		return datapath.Unwalked{}, os.ErrClosed
	}
}

func (p *path) Close() error {
	close(p.closed)
	return nil
}

func (p *path) SendOn(u *datapath.Unwalked, ip []byte) error {
	p.sent = append(p.sent, sent{u.Port, ip})
	return nil
}

// lab is a node, a path, and what is counted.
type lab struct {
	*testing.T
	*Unwalked
	node     *node
	path     *path
	outcomes chan string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{T: t, node: newNode(t), path: newPath(), outcomes: make(chan string, 1)}
	l.Unwalked = New(slog.New(slog.DiscardHandler), func(outcome string) { l.outcomes <- outcome })
	l.Sync(l.path, l.routers())
	t.Cleanup(l.Close)
	return l
}

func (l *lab) routers() map[sliver.ID]fastpath.Router {
	return map[sliver.ID]fastpath.Router{
		{Slice: 1, Node: "r"}: l.node.Router,
		// It has no labels: what comes from its port is nobody's.
		{Slice: 1, Node: "ip"}: {Slice: 1, PID: l.node.PID, NetNS: l.node.NetNS, Legs: map[int]int{l.node.inside: 50}},
	}
}

func (l *lab) expect(want string, u datapath.Unwalked) {
	l.Helper()
	l.path.packets <- u
	select {
	case have := <-l.outcomes:
		if have != want {
			l.Errorf("%+v: %s, want %s", u, have, want)
		}
	case <-time.After(patience):
		l.Fatalf("%+v: nothing became of it", u)
	}
}

// from gives a packet with a label, as it comes to the node.
func from(source string) datapath.Unwalked {
	ip := make([]byte, 60)
	a := netip.MustParseAddr(source)
	if a.Is6() {
		ip[0], ip[5], ip[6], ip[7] = 0x60, 20, 17, 3
		copy(ip[8:], a.AsSlice())
		copy(ip[24:], netip.MustParseAddr("2001:db8:3::1").AsSlice())
	} else {
		ip[0], ip[3], ip[6], ip[8], ip[9] = 0x45, 60, 0x40, 3, 17
		copy(ip[12:], a.AsSlice())
		copy(ip[16:], []byte{203, 0, 113, 1})
	}
	return datapath.Unwalked{
		Space: space, Port: port, Why: datapath.TTLExpired, Packet: ip,
		Labels: []datapath.StackEntry{{Label: 16, TTL: 1}, {Label: 17, Class: 5, TTL: 200}},
	}
}

var labels = []icmp.Extension{&icmp.MPLSLabelStack{Class: 1, Type: 1, Labels: []icmp.MPLSLabel{
	{Label: 16, TTL: 1}, {Label: 17, TC: 5, TTL: 200, S: true},
}}}

// The router's kernel knows a way to the source: the answer is from the primary address of the interface.
func TestAnswerByIP(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		network, source, from string
		protocol              int
		kind                  icmp.Type
	}{
		{"ip4:icmp", "198.51.100.10", "192.0.2.1", 1, ipv4.ICMPTypeTimeExceeded},
		{"ip6:ipv6-icmp", "2001:db8:2::10", "2001:db8:1::1", 58, ipv6.ICMPTypeTimeExceeded},
	} {
		ear := l.node.listen(t, c.network, c.source)
		l.expect(ByIP, from(c.source))
		b := make([]byte, 2000)
		n, sender, err := ear.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		if sender.String() != c.from {
			t.Errorf("the answer is from %s, want %s", sender, c.from)
		}
		have, err := icmp.ParseMessage(c.protocol, b[:n])
		if err != nil {
			t.Fatal(err)
		}
		body, ok := have.Body.(*icmp.TimeExceeded)
		if have.Type != c.kind || !ok {
			t.Fatalf("the answer is %+v", have)
		}
		if diff := cmp.Diff(labels, body.Extensions); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
	}
	// Too big: it would have fit with 1504 bytes, of which its two labels are eight.
	ear := l.node.listen(t, "ip4:icmp", "198.51.100.10")
	u := from("198.51.100.10")
	u.Why, u.Room = datapath.TooBig, 1504
	l.expect(ByIP, u)
	b := make([]byte, 2000)
	if n, _, err := ear.ReadFrom(b); err != nil || n < 8 || b[0] != 3 || b[1] != 4 ||
		binary.BigEndian.Uint16(b[6:]) != 1496 {
		t.Errorf("%x, %v", b[:8], err)
	}
	if len(l.path.sent) > 0 {
		t.Errorf("along the LSP: %+v", l.path.sent)
	}
}

// The router's kernel knows no way to the source: the end of the LSP does.
func TestAnswerAlongTheLSP(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		source, from string
		port         int
	}{
		{"100.64.0.1", "192.0.2.1", port},
		{"2001:db8:9::1", "2001:db8:1::1", port},
		{"100.64.0.2", "198.51.100.10", noOther}, // that of another interface
	} {
		u := from(c.source)
		u.Port = c.port
		l.expect(ByLSP, u)
		if len(l.path.sent) != 1 || l.path.sent[0].Port != c.port {
			t.Fatalf("along the LSP: %+v", l.path.sent)
		}
		ip := l.path.sent[0].IP
		l.path.sent = nil
		at, size := 12, 4
		if ip[0]>>4 == 6 {
			at, size = 8, 16
		}
		source, _ := netip.AddrFromSlice(ip[at : at+size])
		to, _ := netip.AddrFromSlice(ip[at+size : at+2*size])
		if source.String() != c.from || to.String() != c.source {
			t.Errorf("from %s to %s, want from %s to %s", source, to, c.from, c.source)
		}
	}
}

func TestWhatGetsNoAnswerIsCounted(t *testing.T) {
	l := newLab(t)
	change := func(f func(*datapath.Unwalked)) datapath.Unwalked {
		u := from("100.64.0.1")
		f(&u)
		return u
	}
	l.expect(Alert, change(func(u *datapath.Unwalked) { u.Why = datapath.RouterAlert }))
	l.expect(Silent, change(func(u *datapath.Unwalked) { u.Packet[7] = 1 })) // a fragment
	l.expect(Silent, change(func(u *datapath.Unwalked) { u.Why, u.Room = datapath.TooBig, 8 }))
	l.expect(Unknown, change(func(u *datapath.Unwalked) { u.Port = 99 }))
	l.expect(Unknown, change(func(u *datapath.Unwalked) { u.Space = space + 1 }))
	l.expect(Unknown, change(func(u *datapath.Unwalked) { u.Port, u.Space = 50, 0 }))

	l.node.NetNS++ // another node's by now
	l.Sync(l.path, l.routers())
	l.expect(Failed, from("100.64.0.1"))
	if len(l.path.sent) > 0 {
		t.Errorf("along the LSP: %+v", l.path.sent)
	}
}

// A slice gets so many answers, whatever its routers are. Another slice's are its own.
func TestAnswersToASliceAreBounded(t *testing.T) {
	l := newLab(t)
	other := l.node.Router
	other.Slice, other.Legs, other.Labels.Space = 2, map[int]int{l.node.inside: 60}, space+1
	both := l.routers()
	both[sliver.ID{Slice: 2, Node: "r"}] = other
	l.Sync(l.path, both)
	theirs := from("100.64.0.1")
	theirs.Port, theirs.Space = 60, space+1
	begin, answered := time.Now(), 0
	const sends = 2 * answersAtOnce
	for range sends {
		l.path.packets <- from("100.64.0.1")
		if <-l.outcomes == ByLSP {
			answered++
		}
	}
	most := answersAtOnce + int(time.Since(begin)*answersPerSecond/time.Second) + 1
	if answered < answersAtOnce || answered > most {
		t.Errorf("of %d, %d were answered: want %d to %d", sends, answered, answersAtOnce, most)
	}
	l.Sync(l.path, both) // it goes on where it was
	l.path.sent = nil
	l.expect(ByLSP, theirs)
}

// Another data path is read in place of the one before; without one, nothing is.
func TestTheDataPathThatIsThereIsRead(t *testing.T) {
	l := newLab(t)
	first := l.path
	l.Sync(first, l.routers())
	select {
	case <-first.closed:
		t.Fatal("the same data path is read anew")
	default:
	}
	l.path = newPath()
	l.Sync(l.path, l.routers())
	<-first.closed
	l.expect(Alert, func() datapath.Unwalked {
		u := from("100.64.0.1")
		u.Why = datapath.RouterAlert
		return u
	}())
	l.Sync(nil, nil)
	<-l.path.closed

	l.path = newPath()
	l.path.refuse = errors.New("no memory")
	l.Sync(l.path, l.routers())
	l.path.refuse = nil
	l.Sync(l.path, l.routers()) // the next pass
	l.expect(ByLSP, from("100.64.0.1"))
}

// What an answer costs the agent, by either way.
func BenchmarkAnswer(b *testing.B) {
	n, p := newNode(b), newPath()
	u := New(slog.New(slog.DiscardHandler), func(string) {})
	u.Sync(p, map[sliver.ID]fastpath.Router{{Slice: 1, Node: "r"}: n.Router})
	u.limits[n.Slice].SetLimit(rate.Inf)
	defer u.Close()
	for outcome, source := range map[string]string{ByIP: "198.51.100.10", ByLSP: "100.64.0.1"} {
		b.Run(outcome, func(b *testing.B) {
			packet := from(source)
			for b.Loop() {
				if have := u.answer(p, &packet); have != outcome {
					b.Fatal(have)
				}
			}
		})
	}
}
