package wire

import (
	"errors"
	"fmt"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// What the driver of an interface does for XDP.

// xdpNative is the XDP mode of an interface whose driver runs the line card; that of others is the reason why there is
// none.
const xdpNative = "native"

var (
	errSwitchedOff = errors.New("switched off (--xdp off)")

	// errNotIP is for lo, PPP, and other kinds that are not supported.
	errNotIP = errors.New("it carries neither Ethernet frames nor IP packets as they are, " +
		"so it cannot carry tunnels")

	// errNoEthernet is for WireGuard, tun and the like, which carry tunnels without a line card.
	errNoEthernet = errors.New("no Ethernet interface")

	// errChecksums is for a veth pair as containers have it: its peer leaves checksums to the receiver, and frames
	// that XDP forwards would stay without them.
	errChecksums = errors.New("a veth pair whose other end may leave checksums to be filled in " +
		"(once `ethtool -K <interface> tx off` is said at both ends, it can have one)")

	// errPeerWithoutXDP: what a program sends to a veth is lost, even back by XDP_TX, unless the other end has NAPI
	// on.
	errPeerWithoutXDP = errors.New("a veth pair whose other end takes nothing from XDP " +
		"(once `ethtool -K <interface> gro on` is said there, it can have one)")
)

// checkXDP fails where frames come in at the interface otherwise than from a wire, or leave it otherwise. The thread is
// in its namespace.
func checkXDP(nic device) error {
	switch {
	case nic.rawIP:
		return errNoEthernet
	case !nic.ether:
		return errNotIP
	case nic.kind != "veth":
		return nil
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	offloads, err := e.Features(nic.name)
	if err != nil {
		return fmt.Errorf("ask for offloads: %w", err)
	}
	if offloads["tx-checksum-ip-generic"] { // of this end; a pair that is prepared for this has it off at both
		return errChecksums
	}
	if able, err := readXDPFeatures(nic.index); err == nil && !able.has(featureTransmit) {
		return errPeerWithoutXDP
	}
	return nil
}

// expectXDP gives the XDP mode that the interface's driver is expected to have.
func expectXDP(d device) string {
	if err := checkXDP(d); err != nil {
		return whyNoXDP(err)
	}
	switch able, err := readXDPFeatures(d.index); {
	case err != nil:
		return "not known before it is tried"
	case able.has(featureBasic | featureRedirect):
		return xdpNative
	}
	return whyNoXDP(unix.EOPNOTSUPP)
}

// whyNoXDP says why there is no line card; "" if there is one.
func whyNoXDP(err error) string {
	var taken *datapath.TakenError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &taken):
		return "none: " + taken.Error()
	case errors.Is(err, unix.EOPNOTSUPP):
		return "none: the driver has none of its own"
	}
	return "none: " + err.Error()
}

// features is enum netdev_xdp_act of the kernel (linux/netdev.h).
type features uint64

const (
	featureBasic             features = 1 << 0 // NETDEV_XDP_ACT_BASIC: runs programs, and sends back what they want
	featureRedirect          features = 1 << 1 // NETDEV_XDP_ACT_REDIRECT
	featureTransmit          features = 1 << 2 // NETDEV_XDP_ACT_NDO_XMIT: sends what other devices redirect
	featureTransmitFragments features = 1 << 6 // NETDEV_XDP_ACT_NDO_XMIT_SG: also frames in several buffers
)

func (f features) has(all features) bool { return f&all == all }

// readXDPFeatures reads what the driver of an interface in the thread's namespace does for XDP now. Linux 6.3 and later
// answer, by the generic netlink family netdev; before, it is an error.
func readXDPFeatures(index int) (features, error) {
	const (
		devGet       = 1 // NETDEV_CMD_DEV_GET
		attrIfindex  = 1 // NETDEV_A_DEV_IFINDEX
		attrFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return 0, fmt.Errorf("ask for XDP: %w", err)
	}
	c, err := rtnl.Open(unix.NETLINK_GENERIC)
	if err != nil {
		return 0, fmt.Errorf("ask for XDP: %w", err)
	}
	defer func() { _ = c.Close() }()
	header := []byte{devGet, 1, 0, 0} // struct genlmsghdr: command, version
	answer, err := c.Get(family.ID, header, rtnl.U32(attrIfindex, uint32(index)))
	if err != nil {
		return 0, fmt.Errorf("ask for XDP: %w", err)
	}
	for a := (rtnl.Message{Data: answer}).Attributes(len(header)); a.Next(); {
		if a.Kind == attrFeatures {
			return features(a.U64()), nil
		}
	}
	return 0, errors.New("ask for XDP: the kernel does not say")
}
