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
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
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
	nest := func(kind uint16, children ...rtnl.Attr) rtnl.Attr {
		return rtnl.Nest(kind|unix.NLA_F_NESTED, children...)
	}
	allowed := func(addr netip.Addr) rtnl.Attr {
		family := uint16(unix.AF_INET)
		if addr.Is6() {
			family = unix.AF_INET6
		}
		return nest(0, rtnl.U16(wgAllowedFamily, family), rtnl.Bytes(wgAllowedAddress, addr.AsSlice()),
			rtnl.U8(wgAllowedCut, uint8(addr.BitLen())))
	}
	// struct sockaddr_in
	endpoint := binary.BigEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, unix.AF_INET), wgPort)
	endpoint = slices.Concat(endpoint, peer.ip4.AsSlice(), make([]byte, 8))
	behind := peer.behind()
	c, err := rtnl.Open(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	header := []byte{wgSetDevice, 1, 0, 0} // struct genlmsghdr: command, version
	err = c.Do(family.ID, 0, header,
		rtnl.U32(wgIndex, uint32(link.Attrs().Index)), rtnl.Bytes(wgPrivateKey, key.Bytes()),
		rtnl.U16(wgListenPort, wgPort),
		nest(wgPeers, nest(0, rtnl.Bytes(wgPeerPublicKey, other.Bytes()), rtnl.Bytes(wgPeerEndpoint, endpoint),
			nest(wgPeerAllowed, allowed(behind.ip4), allowed(behind.ip6)))))
	return errors.Join(err, c.Close())
}
