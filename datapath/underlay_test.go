package datapath

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	verdictNext = 0xffffffff // TC_ACT_UNSPEC
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// inRoutedWorld is a world with a network card, the first device, which has addresses and a neighbour; the second is
// the uplink, both ends of it.
func inRoutedWorld(t testing.TB, f func(w *world)) {
	t.Helper()
	inUplinkedWorld(t, func(w *world) {
		w.ip("link set pa address %s", net.HardwareAddr(macHere[:]))
		for _, device := range []string{"pa", "pa1", "pb", "pb1"} {
			w.ip("link set %s up", device)
		}
		for _, a := range []netip.Addr{here4, here6} {
			w.ip("address add %s/%d dev pa nodad", a, a.BitLen()-8)
		}
		for _, a := range []netip.Addr{there4, there6, third4, third6} {
			w.ip("neighbour add %s lladdr %s dev pa nud permanent", a, net.HardwareAddr(macThere[:]))
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			w.check(os.WriteFile("/proc/sys/net/"+family+"/conf/pb/forwarding", []byte("1"), 0))
		}
		w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = uint32(w.b) }))
		napi, err := passAll(w.a)
		w.check(err)
		defer func() { w.check(napi.Close()) }()
		f(w)
	})
}

// card runs the line card of tunnels on what comes in at the network card.
func (w *world) card(outer []byte) outcome {
	w.Helper()
	opts := ebpf.RunOptions{Data: outer, DataOut: make([]byte, len(outer)+256),
		Context: &xdpMD{DataEnd: uint32(len(outer)), IngressIfindex: uint32(w.a)}}
	verdict, err := w.d.programs.UnderlayLinecard.Run(&opts)
	w.check(err)
	return outcome{verdict, opts.DataOut, w.takeAll()}
}

func TestUnderlayTakesWhatIsForTunnels(t *testing.T) {
	frame := packet{to: macA}.bytes()
	card := around{to: macHere, from: macThere}
	inRoutedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			port := w.tunnelled(w.a, tunnel)
			ours, foreign := tunnel.turned(), tunnel.turned()
			foreign.Peer = third4
			if foreign.Local.Is6() {
				foreign.Peer = third6
			}
			otherKind := ours
			otherKind.Kind = EGRE + VXLAN - ours.Kind
			otherStation := card
			otherStation.to = macOther
			spoofed := ours
			spoofed.Key = 1
			for name, c := range map[string]struct {
				p       []byte
				verdict uint32
			}{
				"ours":          {ours.outer(frame, card), verdictRedirect},
				"spoofed":       {spoofed.outer(frame, card), verdictRedirect}, // where it is counted
				"other address": {foreign.outer(frame, card), verdictNext},
				"other kind":    {otherKind.outer(frame, card), verdictNext},
				"other station": {ours.outer(frame, otherStation), verdictNext},
				"tagged":        {tagged(ours.outer(frame, card), 0x8100, 7), verdictNext},
				"DNS":           {packet{to: macHere}.bytes(), verdictNext},
				"ARP":           {ethernet(broadcast, macThere, 0x0806, 60), verdictNext},
				"short":         {ethernet(macHere, macThere, 0x88b5, 14), verdictNext},
			} {
				w.name = tunnel.named() + ", " + name
				w.expect(w.run(w.d.programs.UnderlayIngress, w.a, c.p), c.verdict, c.p,
					map[string]uint64{})
			}
			w.name = "no uplink"
			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = 0 }))
			p := ours.outer(frame, card)
			w.expect(w.run(w.d.programs.UnderlayIngress, w.a, p), verdictNext, p, map[string]uint64{})
			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = uint32(w.b) }))
			w.check(w.d.Forget(port))
		}
	})
}

func TestUnderlayRoutesOuterPackets(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		frame := packet{}.bytes()
		egress := func(t Tunnel, payload int) outcome {
			p := packet{payload: payload}
			return w.run(w.d.programs.UnderlayEgress, w.b, t.outer(p.bytes(), around{}))
		}
		for _, tunnel := range sorts {
			w.name = tunnel.named()
			w.asked(time.Time{})
			// the kernel's, which asks for the neighbour
			w.expect(egress(tunnel, 0), verdictRedirect, tunnel.outer(frame, around{}), map[string]uint64{})
			w.asked(never)
			w.expect(egress(tunnel, 0), verdictRedirect,
				tunnel.outer(frame, around{to: macThere, from: macHere}), map[string]uint64{})

			w.name = "no neighbour"
			tunnel.Peer = netip.MustParseAddr("203.0.113.77")
			if tunnel.Local.Is6() {
				tunnel.Peer = netip.MustParseAddr("2001:db8:f::77")
			}
			w.expect(egress(tunnel, 0), verdictRedirect, tunnel.outer(frame, around{}), map[string]uint64{})

			w.name = "too big"
			have := egress(tunnel, 1500)
			w.expect(have, verdictShot, have.Frame, map[string]uint64{"too big": 1})

			w.name = "no route"
			tunnel.Peer = netip.MustParseAddr("198.51.100.1")
			if tunnel.Local.Is6() {
				tunnel.Peer = netip.MustParseAddr("2001:db9::1")
			}
			w.expect(egress(tunnel, 0), verdictShot, tunnel.outer(frame, around{}),
				map[string]uint64{"no route": 1})
		}
		w.name = "stray"
		w.expect(w.run(w.d.programs.UnderlayEgress, w.b, frame), verdictShot, frame,
			map[string]uint64{"stray": 1})
	})
}

// Where a VPN carries the tunnels, no other interface does, wherever the machine's routes lead.
func TestOuterPacketsLeaveByTheUnderlayAlone(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			unknown := tunnel
			unknown.Peer = netip.MustParseAddr("203.0.113.77")
			if tunnel.Local.Is6() {
				unknown.Peer = netip.MustParseAddr("2001:db8:f::77")
			}
			relay, out := w.relay(tunnel)
			goes := func(may bool) {
				w.Helper()
				w.asked(never)
				bare := func(t Tunnel) []byte { return t.outer(packet{}.bytes(), around{}) }
				sent := out.outer(packet{}.bytes(), around{to: macThere, from: macHere})
				want := map[string]uint64{}
				verdict, card := uint32(verdictRedirect), uint32(xdpTX)
				if !may {
					sent, want = bare(out), map[string]uint64{"off underlay": 1}
					verdict, card = verdictShot, xdpPass
				}
				w.expireEgressRoutes()
				w.expect(w.run(w.d.programs.UnderlayEgress, w.b, bare(out)), verdict, sent, want)
				// The kernel would ask for the neighbour.
				left := w.run(w.d.programs.UnderlayEgress, w.b, bare(unknown))
				w.expect(left, verdict, bare(unknown), want)
				w.asked(time.Time{})
				w.expireEgressRoutes()
				w.expect(w.run(w.d.programs.UnderlayEgress, w.b, bare(out)), verdict, bare(out), want)
				w.asked(never)
				w.editCardRoutes(func(k *cardRoute) { k.Until = 0 })
				if have := w.card(relay(packet{})); have.Verdict != card {
					w.Errorf("%s: verdict %d of the line card, want %d", w.name, have.Verdict, card)
				}
				w.takeAll()
			}
			for _, c := range []struct {
				name string
				nics []int
				may  bool
			}{{"another interface", []int{w.b}, false}, {"two interfaces", []int{w.b, w.a},
				true}, {"the interface", []int{w.a}, true}, {"none", nil, false}} {
				w.name = tunnel.named() + ", bound to " + c.name
				w.check(w.d.BindUnderlay(c.nics))
				goes(c.may)
			}
			w.name = tunnel.named() + ", free again"
			w.check(w.d.FreeUnderlay())
			goes(true)
			w.forgetTunnels()
		}
	})
}

// The number of an interface that is gone may become another one's.
func TestInterfacesThatAreGoneAreNoExits(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.ip("link add gone type veth peer name gone1")
		index := ifindex(w, "gone")
		w.check(w.d.BindUnderlay([]int{w.a, index}))
		if n := count(w, w.d.maps.Exits); n != 2 {
			w.Errorf("%d entries", n)
		}
		w.ip("link delete gone")
		if n := count(w, w.d.maps.Exits); n != 1 {
			w.Errorf("%d entries are left", n)
		}
		if bound, err := w.d.IsUnderlayBound(); !bound || err != nil {
			w.Errorf("bound: %v, %v", bound, err)
		}
		w.check(w.d.FreeUnderlay())
		if n := count(w, w.d.maps.Exits); n != 0 {
			w.Errorf("%d entries are left", n)
		}
	})
}

// What a tunnel took in and gave out is known for each, by programs of tc and by the line card.
func TestTrafficOfEachTunnelIsCounted(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		end := w.port(macB)
		w.check(w.d.AllowXDPToPort(end, w.b))
		for _, tunnel := range sorts {
			port := w.tunnelled(end, tunnel)
			frame := packet{to: macB}.bytes()
			came := tunnel.turned().outer(frame, around{to: macHere, from: macThere})
			want := Counters{Emerged: Traffic{Frames: 1, Bytes: uint64(len(frame))},
				Dropped: map[string]uint64{}}
			for name, p := range map[string]*ebpf.Program{"tc": w.d.programs.UplinkIngress,
				"XDP": w.d.programs.UnderlayLinecard} {
				w.name = tunnel.named() + ", " + name
				opts := ebpf.RunOptions{Data: came, DataOut: make([]byte, len(came)+256),
					Context: &skbuff{Ifindex: uint32(w.b)}}
				if name == "XDP" {
					opts.Context = &xdpMD{DataEnd: uint32(len(came)), IngressIfindex: uint32(w.a)}
				}
				_, err := p.Run(&opts)
				w.check(err)
				if n := must(w.d.Underlay())[ByLineCard]; n > 0 != (name == "XDP") {
					w.Errorf("%d packets by the line card", n)
				}
				if diff := cmp.Diff(want, must(w.d.Counters())[port]); diff != "" {
					w.Errorf("of the tunnel (-want +have):\n%s", diff)
				}
				w.takeAll()
			}
			w.check(w.d.Forget(port))
		}
	})
}

// Whatever others have at a card stays.
func TestUnderlayProgramsComeAndGo(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		before := b.tc("filter show dev pa ingress; tc qdisc show dev pa")
		for range 2 {
			b.check(d.AttachUnderlay(b.a))
		}
		if have := b.tc("filter show dev pa ingress"); strings.Count(have, "underlay_ingress") != 1 ||
			!strings.Contains(have, "pref 7470") {
			b.Errorf("filters: %s", have)
		}
		for range 2 {
			b.check(d.DetachUnderlay(b.a))
		}
		if diff := cmp.Diff(before, b.tc("filter show dev pa ingress; tc qdisc show dev pa")); diff != "" {
			b.Errorf("left at the card: %s", diff)
		}
		b.tc("qdisc add dev pa clsact")
		b.tc("filter add dev pa egress protocol ip pref 5 u32 match u32 0 0 classid 1:1")
		b.check(d.AttachUnderlay(b.a))
		b.check(d.DetachUnderlay(b.a))
		if have := b.tc("filter show dev pa egress"); !strings.Contains(have, "pref 5") {
			b.Errorf("another's filter is gone: %s", have)
		}
		b.check(d.AttachUplink(b.b))
		b.check(d.SetUplink(b.b))
		b.check(d.AttachEgress(b.a))
		b.check(d.DetachUnderlay(9999))
		if err := d.AttachUnderlay(9999); !errors.Is(err, unix.ENODEV) {
			b.Errorf("attached to no device: %v", err)
		}
	})
}

func (b *bench) tc(command string) string {
	b.Helper()
	out, err := exec.Command("sh", "-c", "tc "+command).CombinedOutput()
	if err != nil {
		b.Errorf("tc %s: %s", command, out)
	}
	return string(bytes.TrimSpace(out))
}

func TestLineCardThatIsTakenSaysByWhom(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		other, err := passAll(b.a)
		b.check(err)
		info, err := other.Info()
		b.check(err)
		err = d.AttachNICLineCard(b.a, true)
		var taken *TakenError
		if !errors.As(err, &taken) || taken.Program != uint32(info.Program) {
			b.Errorf("attached where program %d is: %v", info.Program, err)
		}
		b.check(other.Close())
		b.check(d.AttachNICLineCard(b.a, true))
		b.check(d.AttachNICLineCard(b.a, true)) // is there
		newer, err := open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newer"})
		b.check(err)
		b.check(newer.Close())
		if err := newer.DetachNICLineCard(b.a); err != nil {
			b.Error(err)
		}
		b.check(d.DetachNICLineCard(b.a))
		other, err = passAll(b.a)
		b.check(err)
		b.check(other.Close())
	})
}
