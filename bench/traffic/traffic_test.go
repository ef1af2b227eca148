package traffic

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestStatisticsAreParsed(t *testing.T) {
	const text = "Ip: Forwarding ForwDatagrams\nIp: 1 42\nUdp: InDatagrams InErrors\nUdp: 7 8\n"
	got, err := parseSNMP([]byte(text), []string{"Udp:InErrors", "Ip:ForwDatagrams"})
	if err != nil || !slices.Equal(got, []uint64{8, 42}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseSNMP([]byte(text), []string{"Tcp:InSegs"}); err == nil {
		t.Error("found what is not there")
	}
}

func TestIperfIsParsed(t *testing.T) {
	got, err := parseIperf(
		[]byte(`{"end": {"sum_sent": {"bits_per_second": 3}, "sum_received": {"bits_per_second": 2.5e9}}}`))
	if err != nil || got != 2.5e9 {
		t.Errorf("got %v, %v", got, err)
	}
	got, err = parseIperf([]byte(`{"end": {"sum": {"bits_per_second": 4e9, "packets": 400, "lost_packets": 100}}}`))
	if err != nil || got != 3e9 {
		t.Errorf("of UDP got %v, %v", got, err)
	}
	for _, bad := range []string{"", `{"error": "unable to connect"}`} {
		if _, err := parseIperf([]byte(bad)); err == nil {
			t.Errorf("parsed %q", bad)
		}
	}
}

func TestSeenIsSummedOverCPUs(t *testing.T) {
	got := total([]objectSeen{{}, {Frames: 10, First: 100, Last: 900, Ttl: 63},
		{Frames: 5, First: 50, Last: 800, Ttl: 62}})
	if want := (Seen{Frames: 15, Took: 850, TTL: 63}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Seen{Frames: 500, Took: time.Second / 2}).Rate(); math.Abs(got-1000) > 1e-9 {
		t.Errorf("rate %v", got)
	}
}

// link is two namespaces with a veth pair between them.
type testLink struct {
	ns     [2]*os.File
	device [2]int
	mac    [2][6]byte
}

func newLink(t *testing.T) testLink {
	t.Helper()
	testkit.Root(t)
	testkit.LeakCheck(t, "pgtraffic")
	var l testLink
	for i := range l.ns {
		err := netns.New(func() (err error) {
			l.ns[i], err = netns.Open("/proc/thread-self/ns/net")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.ns[i].Close() })
	}
	must(t, netns.In(l.ns[0], func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "pgtraffic"})
		veth.PeerName, veth.PeerNamespace = "pgtraffic", netlink.NsFd(l.ns[1].Fd())
		return netlink.LinkAdd(veth)
	}))
	for i := range l.ns {
		must(t, netns.In(l.ns[i], func() error { return l.configure(i) }))
	}
	return l
}

func (l *testLink) configure(i int) error {
	d, err := netlink.LinkByName("pgtraffic")
	if err != nil {
		return err
	}
	l.device[i], l.mac[i] = d.Attrs().Index, [6]byte(d.Attrs().HardwareAddr)
	ip := l.address(i).AsSlice()
	if err := netlink.AddrAdd(d, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(d)
}

func (testLink) address(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 1+i)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryGeneratedFrameIsSeen(t *testing.T) {
	l := newLink(t)
	s, err := NewNICSink(l.ns[1], l.device[1])
	must(t, err)
	defer func() { must(t, s.Close()) }()
	g, err := NewGenerator(l.ns[0], Flow{
		Device: l.device[0], From: l.mac[0], To: l.mac[1], Source: l.address(0),
		Destinations: []netip.Addr{l.address(1)}, Size: FrameSize,
	})
	must(t, err)
	defer func() { must(t, g.Close()) }()
	const frames = 1000
	must(t, OnCPU(0, func() error { return g.Send(frames) }))
	testkit.Eventually(t, func() error {
		seen, err := s.Seen()
		if err == nil && (seen.Frames != frames || seen.TTL != 64) {
			err = fmt.Errorf("seen %+v, want %d frames", seen, frames)
		}
		return err
	}, 5*time.Second, "all frames")
	must(t, s.Reset())
	if seen, err := s.Seen(); err != nil || seen.Frames != 0 {
		t.Errorf("after a reset: %+v, %v", seen, err)
	}
}

func TestFloodIsSeenAndEchoed(t *testing.T) {
	l := newLink(t)
	s, err := NewHostSink(l.ns[1], l.device[1])
	must(t, err)
	f, err := NewFlood(l.ns[0], l.address(1), FrameSize)
	must(t, err)
	sent, _, err := f.Send(time.Millisecond)
	must(t, err)
	seen, err := s.Seen()
	must(t, err)
	// The first few wait for the neighbour, and some of those are lost.
	if seen.Frames == 0 || seen.Frames > sent {
		t.Errorf("sent %d, seen %d", sent, seen.Frames)
	}
	must(t, f.Close())
	must(t, s.Close())

	e, err := StartEcho(l.ns[1], runtime.NumCPU()-1)
	must(t, err)
	for _, kind := range []string{ICMP, UDP} {
		p, err := NewPinger(l.ns[0], kind, l.address(1))
		must(t, err)
		took, err := p.Ping(time.Millisecond)
		if err != nil || took <= 0 {
			t.Errorf("%s: %v, %v", kind, took, err)
		}
		if kind == ICMP && p.TTL() != 64 {
			t.Errorf("TTL %d", p.TTL())
		}
		must(t, p.Close())
	}
	must(t, e.Stop())
}

func TestDatagramsArriveOneWay(t *testing.T) {
	l := newLink(t)
	to := netip.AddrPortFrom(l.address(1), Port)
	p, err := NewOneWay(l.ns[0], l.ns[1], to, Port, make([]byte, 32))
	must(t, err)
	defer func() { must(t, p.Close()) }()
	f, err := NewFloodOf(l.ns[0], to, make([]byte, 32)) // its datagrams are no answers
	must(t, err)
	defer func() { must(t, f.Close()) }()
	must(t, PaceAll([]*Flood{f, f}, 10*time.Millisecond, 1000))
	testkit.Eventually(t, func() error {
		took, arrived, err := p.Once()
		if err == nil && (!arrived || took <= 0) {
			err = fmt.Errorf("arrived is %v after %v", arrived, took)
		}
		return err
	}, 5*time.Second, "a datagram")
}

func TestThreadsOfNAPIHaveDevicesInTheirNames(t *testing.T) {
	for comm, want := range map[string]string{"napi/s100-1-8193": "s100-1", "napi/eth0-12": "eth0", "napi/-1": "",
		"napi/eth0": "", "napi/eth0-x": "", "kworker/0-1": ""} {
		if got, is := deviceOfThread(comm); is != (want != "") || is && got != want {
			t.Errorf("%s: %q, %v", comm, got, is)
		}
	}
}

func TestGeneratorRefusesACrowdWithoutDestinations(t *testing.T) {
	f := Flow{Crowd: true, Devices: []int{1, 2}, Destinations: make([]netip.Addr, 4)}
	if _, err := NewGenerator(nil, f); err == nil {
		t.Error("took two devices with four destinations")
	}
}

func TestGeneratorRefusesDestinationsThatAreNoPowerOfTwo(t *testing.T) {
	if _, err := NewGenerator(nil, Flow{Destinations: make([]netip.Addr, 3)}); err == nil {
		t.Error("took three")
	}
}
