package datapath

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// never is a time when the kernel was asked last, for it not to be asked again.
var never = time.Unix(1<<32, 0)

// asked says when the kernel last saw a packet to each of the other machines, by the clock of programs; the zero
// time: it never did.
func (w *world) asked(last time.Time, others ...netip.Addr) {
	w.Helper()
	for _, peer := range append(others, here4, there4, third4, here6, there6, third6) {
		if last.IsZero() {
			w.check(ignoreNotExist(w.d.maps.Asked.Delete(peer.As16())))
		} else {
			w.check(w.d.maps.Asked.Put(peer.As16(), uint64(last.UnixNano())))
		}
	}
}

// cardRoute is struct card_route.
type cardRoute struct {
	NIC, MTU     uint32
	To, From     [6]byte
	Port         uint32
	Class, Until uint64
}

// editCardRoutes edits the line card's route cache, on all CPUs.
func (w *world) editCardRoutes(edit func(*cardRoute)) {
	w.Helper()
	for slot := range w.d.maps.CardRoutes.MaxEntries() {
		perCPU := make([]cardRoute, ebpf.MustPossibleCPU())
		w.check(w.d.maps.CardRoutes.Lookup(slot, &perCPU))
		kept := false
		for i := range perCPU {
			if perCPU[i].Port != 0 {
				kept = true
				edit(&perCPU[i])
			}
		}
		if kept {
			w.check(w.d.maps.CardRoutes.Put(slot, perCPU))
		}
	}
}

// relay joins two tunnels of a sort without a router between: what comes by the one, and the other.
func (w *world) relay(in Tunnel) (came func(packet) []byte, out Tunnel) {
	out = in
	in.Key, out.Key, out.Peer = 100, 200, third4
	if out.Local.Is6() {
		out.Peer = third6
	}
	w.tunnelled(w.tunnelled(w.a, in), out)
	return func(p packet) []byte { return in.turned().outer(p.bytes(), around{to: macHere, from: macThere}) }, out
}

// One packet a second goes by tc, which hands it to the kernel; the line card leaves that to tc.
func TestTunnelCardLeavesTheKernelsTurn(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			w.name = tunnel.named()
			relay, out := w.relay(tunnel)
			came, goes := relay(packet{}), out.outer(packet{}.bytes(), around{})
			w.asked(time.Time{})
			for range 2 {
				w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			}
			w.expect(w.run(w.d.programs.UnderlayEgress, w.b, goes), verdictRedirect, goes,
				map[string]uint64{})
			var last uint64
			w.check(w.d.maps.Asked.Lookup(out.Peer.As16(), &last))
			w.asked(never)
			if have := w.card(came); have.Verdict != xdpTX {
				w.Errorf("%s: verdict %d", w.name, have.Verdict)
			}
			w.asked(time.Time{})
			w.editCardRoutes(func(k *cardRoute) { k.Until = 0 })
			w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			w.forgetTunnels()
		}
	})
}

func (w *world) forgetTunnels() {
	for port := range must(w.d.Tunnels()) {
		w.check(w.d.Forget(port))
	}
}

// stay keeps the thread on one CPU, each of which has route caches of its own, until the returned function is called.
func (w *world) stay() (leave func()) {
	w.Helper()
	var before, one unix.CPUSet
	w.check(unix.SchedGetaffinity(0, &before))
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	w.check(unix.SchedSetaffinity(0, &one))
	return func() { w.check(unix.SchedSetaffinity(0, &before)) }
}

// What the kernel answered is good for a while, for packets that are alike to routes; then a change is followed.
func TestTunnelCardCachesRoutes(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		defer w.stay()()
		w.asked(never)
		to := func(p packet, relay func(packet) []byte) string {
			w.Helper()
			have := w.card(relay(p))
			if have.Verdict != xdpTX {
				return fmt.Sprintf("verdict %d", have.Verdict)
			}
			return net.HardwareAddr(have.Frame[:6]).String()
		}
		old, moved := net.HardwareAddr(macThere[:]).String(), net.HardwareAddr(macOther[:]).String()
		is := func(want, have string) {
			w.Helper()
			if have != want {
				w.Errorf("%s: sent to %s, want %s", w.name, have, want)
			}
		}
		for _, tunnel := range sorts {
			for _, peer := range []netip.Addr{third4, third6} {
				w.ip("neighbour replace %s lladdr %s dev pa nud permanent", peer, old)
			}
			came, _ := w.relay(tunnel)
			one, two := packet{sport: 1000}, packet{sport: 1001}
			w.name = tunnel.named()
			is(old, to(one, came))
			w.editCardRoutes(func(k *cardRoute) { k.Until = 1 << 63 })
			for _, peer := range []netip.Addr{third4, third6} {
				w.ip("neighbour replace %s lladdr %s dev pa nud permanent", peer, moved)
			}
			w.name = tunnel.named() + ", while it is kept"
			is(old, to(one, came))
			w.name = tunnel.named() + ", another flow"
			if tunnel.Kind == VXLAN || tunnel.Local.Is6() {
				is(moved, to(two, came))
			} else {
				is(old, to(two, came))
			}
			w.name = tunnel.named() + ", longer than the way carries"
			is(fmt.Sprintf("verdict %d", xdpPass), to(packet{sport: 1000, payload: 1450}, came))
			is(old, to(one, came))
			w.name = tunnel.named() + ", when it is old"
			w.editCardRoutes(func(k *cardRoute) { k.Until = 0 })
			is(moved, to(one, came))
			w.name = tunnel.named() + ", no neighbour"
			w.editCardRoutes(func(k *cardRoute) { k.Until = 0 })
			for _, peer := range []netip.Addr{third4, third6} {
				w.ip("neighbour delete %s dev pa", peer)
			}
			is(fmt.Sprintf("verdict %d", xdpPass), to(one, came))
			w.forgetTunnels()
		}
	})
}

// egressRoute is struct egress_route.
type egressRoute struct {
	NIC, MTU     uint32
	To, From     [6]byte
	_            [4]byte
	Local, Peer  [16]byte
	Class, Until uint64
}

// editEgressRoutes edits the route cache of programs of tc, on all CPUs.
func (w *world) editEgressRoutes(edit func(*egressRoute)) {
	w.Helper()
	for slot := range w.d.maps.EgressRoutes.MaxEntries() {
		perCPU := make([]egressRoute, ebpf.MustPossibleCPU())
		w.check(w.d.maps.EgressRoutes.Lookup(slot, &perCPU))
		kept := false
		for i := range perCPU {
			if perCPU[i].Until != 0 {
				kept = true
				edit(&perCPU[i])
			}
		}
		if kept {
			w.check(w.d.maps.EgressRoutes.Put(slot, perCPU))
		}
	}
}

func (w *world) expireEgressRoutes() {
	w.Helper()
	w.editEgressRoutes(func(k *egressRoute) { k.Until = 1 })
}

// The programs of tc keep what the kernel answered as the line card does, and the kernel has its turn all the same.
func TestUnderlayCachesRoutes(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		defer w.stay()()
		w.asked(never)
		old, moved := around{to: macThere, from: macHere}, around{to: macOther, from: macHere}
		move := func(a around) {
			for _, peer := range []netip.Addr{there4, there6} {
				w.ip("neighbour replace %s lladdr %s dev pa nud permanent", peer,
					net.HardwareAddr(a.to[:]))
			}
		}
		is := func(name string, tunnel Tunnel, p packet, as, want around) {
			w.Helper()
			w.name = tunnel.named() + ", " + name
			want.class, want.sport, want.label = as.class, as.sport, as.label
			have := w.run(w.d.programs.UnderlayEgress, w.b, tunnel.outer(p.bytes(), as))
			w.expect(have, verdictRedirect, tunnel.outer(p.bytes(), want), map[string]uint64{})
		}
		for _, tunnel := range sorts {
			move(old)
			is("asked", tunnel, packet{}, around{}, old)
			w.editEgressRoutes(func(k *egressRoute) { k.Until = 1 << 63 })
			move(moved)
			is("kept", tunnel, packet{}, around{}, old)
			is("another length", tunnel, packet{payload: 500}, around{}, old)
			is("another DSCP", tunnel, packet{}, around{class: 46 << 2}, moved)
			another := tunnel
			another.Local = third4
			if tunnel.Local.Is6() {
				another.Local = third6
				is("another flow label", tunnel, packet{}, around{label: 7}, moved)
			}
			is("from another address", another, packet{}, around{}, moved)
			if tunnel.Kind == VXLAN {
				is("another port", tunnel, packet{}, around{sport: 50000}, moved)
			}

			w.name = tunnel.named() + ", too big"
			long := tunnel.outer(packet{payload: 1500}.bytes(), around{})
			w.expect(w.run(w.d.programs.UnderlayEgress, w.b, long), verdictShot, long,
				map[string]uint64{"too big": 1})

			w.expireEgressRoutes()
			is("old", tunnel, packet{}, around{}, moved)
			w.expireEgressRoutes()
			w.asked(time.Time{})
			is("the kernel's turn", tunnel, packet{}, around{}, around{})
			is("after it", tunnel, packet{}, around{}, moved)
			w.asked(never)
			w.expireEgressRoutes()
		}
	})
}

// What comes in by one card leaves by another one that takes it, whole or in parts.
func TestTunnelCardSendsByOtherCards(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		w.ip("link set pa1 mtu 9000")
		w.ip("link set pa mtu 9000")
		other := ifindex(w, "pa1")
		napi, err := passAll(other)
		w.check(err)
		defer func() { w.check(napi.Close()) }()
		for _, tunnel := range sorts {
			relay, _ := w.relay(tunnel)
			small, large := relay(packet{}), relay(packet{payload: 6000})
			by := func(nic int, frame []byte) uint32 {
				w.Helper()
				opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256),
					Context: &xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(nic)}}
				verdict, err := w.d.programs.UnderlayLinecard.Run(&opts)
				w.check(err)
				if verdict == xdpPass && !bytes.Equal(opts.DataOut, frame) {
					w.Errorf("%s: changed and passed: %x", w.name, opts.DataOut)
				}
				return verdict
			}
			is := func(what string, nic int, frame []byte, want uint32) {
				w.Helper()
				if have := by(nic, frame); have != want {
					w.Errorf("%s, %s: verdict %d, want %d", tunnel.named(), what, have, want)
				}
			}
			is("back", w.a, small, xdpTX)
			is("back, in parts", w.a, large, xdpTX)
			is("no card takes it", other, small, xdpPass)
			w.check(w.d.AllowXDPToNIC(w.a, true))
			is("taken", other, small, xdpRedirect)
			is("taken in parts", other, large, xdpRedirect)
			w.check(w.d.AllowXDPToNIC(w.a, false))
			is("taken", other, small, xdpRedirect)
			is("not taken in parts", other, large, xdpPass)
			w.check(w.d.DenyXDPToNIC(w.a))
			w.check(w.d.DenyXDPToNIC(w.a))
			is("no longer taken", other, small, xdpPass)
			w.check(w.d.SendBack(w.a))
			is("back as to others", w.a, small, xdpRedirect)
			is("back in parts, which Linux before 6.3 does not redirect", w.a, large, xdpTX)
			is("not taken from others", other, small, xdpPass)
			w.check(w.d.maps.Nics.Delete(uint32(w.a) | backBit))
			w.forgetTunnels()
		}
	})
}

func TestCardsThatAreGoneTakeNothing(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.ip("link add gone type veth peer name gone1")
		index := ifindex(w, "gone")
		w.check(w.d.AllowXDPToNIC(index, true))
		w.check(w.d.SendBack(index))
		if n := count(w, w.d.maps.Nics); n != 3 {
			w.Errorf("%d entries", n)
		}
		w.ip("link delete gone")
		if n := count(w, w.d.maps.Nics); n != 0 {
			w.Errorf("%d entries are left", n)
		}
		if err := w.d.AllowXDPToNIC(index, false); err == nil {
			w.Errorf("a card that is gone takes frames")
		}
		w.check(w.d.DenyXDPToNIC(index))
	})
}
