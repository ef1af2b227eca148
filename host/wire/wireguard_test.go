package wire_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// Attributes of WireGuard's generic netlink (linux/wireguard.h).
const (
	wgSetDevice                                     = 1
	wgIndex, wgPrivateKey, wgListenPort, wgPeers    = 1, 3, 6, 8
	wgPeerPublicKey, wgPeerEndpoint, wgPeerAllowed  = 1, 4, 9
	wgAllowedFamily, wgAllowedAddress, wgAllowedCut = 1, 2, 3

	wgPort = 51820
)

// Links between machines are encrypted where an interface of WireGuard carries them.
func TestTunnelsThroughWireGuard(t *testing.T) {
	testkit.Root(t)
	testkit.KernelModule(t, "wireguard")
	overPackets(t, byWireGuard, tunnelOf{slice.EGRE, false}, tunnelOf{slice.VXLAN, true})
}

func byWireGuard(one, two *machine) {
	keys := map[*machine]*ecdh.PrivateKey{}
	for _, m := range []*machine{one, two} {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		m.must(err)
		keys[m] = key
	}
	for m, peer := range map[*machine]*machine{one: two, two: one} {
		m.run("ip", "link", "add", vpn, "type", "wireguard")
		m.must(netns.In(m.ns, func() error {
			return errors.Join(setWireGuard(keys[m], keys[peer].PublicKey(), peer), m.setUpVPN())
		}))
	}
}

// setWireGuard gives the interface of the thread's namespace its key and its one peer.
func setWireGuard(key *ecdh.PrivateKey, other *ecdh.PublicKey, peer *machine) error {
	link, err := netlink.LinkByName(vpn)
	if err != nil {
		return err
	}
	family, err := netlink.GenlFamilyGet("wireguard")
	if err != nil {
		return err
	}
	nest := func(kind int, children ...*nl.RtAttr) *nl.RtAttr {
		a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
		for _, c := range children {
			a.AddChild(c)
		}
		return a
	}
	allowed := func(addr netip.Addr) *nl.RtAttr {
		family := uint16(unix.AF_INET)
		if addr.Is6() {
			family = unix.AF_INET6
		}
		return nest(0, nl.NewRtAttr(wgAllowedFamily, nl.Uint16Attr(family)), nl.NewRtAttr(wgAllowedAddress, addr.AsSlice()),
			nl.NewRtAttr(wgAllowedCut, []byte{byte(addr.BitLen())}))
	}
	endpoint := binary.BigEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, unix.AF_INET), wgPort) // struct sockaddr_in
	endpoint = slices.Concat(endpoint, peer.ip4.AsSlice(), make([]byte, 8))
	behind := peer.behind()
	r := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	r.AddData(&nl.Genlmsg{Command: wgSetDevice, Version: 1})
	r.AddData(nl.NewRtAttr(wgIndex, nl.Uint32Attr(uint32(link.Attrs().Index))))
	r.AddData(nl.NewRtAttr(wgPrivateKey, key.Bytes()))
	r.AddData(nl.NewRtAttr(wgListenPort, nl.Uint16Attr(wgPort)))
	r.AddData(nest(wgPeers, nest(0, nl.NewRtAttr(wgPeerPublicKey, other.Bytes()), nl.NewRtAttr(wgPeerEndpoint, endpoint),
		nest(wgPeerAllowed, allowed(behind.ip4), allowed(behind.ip6)))))
	_, err = r.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
