package eligible

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of linux/netconf.h.
const (
	netconfIfindex    = 1
	netconfForwarding = 2
	netconfAll        = -1 // net.ipv4.conf.all
	netconfHeader     = 4  // struct netconfmsg is the family alone
)

func lookAtForwarding(v *visit) (Verdict, error) {
	var verdict Verdict
	switch on, err := forwards(v, unix.AF_INET); {
	case err != nil:
		return verdict, err
	case !on:
		verdict.ipv4("does not forward: net.ipv4.ip_forward is 0")
	default:
		if verdict.IPv4, err = learnt(); err != nil {
			return verdict, err
		}
	}
	switch on, err := forwards(v, unix.AF_INET6); {
	case errors.Is(err, unix.EOPNOTSUPP):
		verdict.ipv6("this kernel has no IPv6")
	case err != nil:
		return verdict, err
	case !on:
		verdict.ipv6("does not forward: net.ipv6.conf.all.forwarding is 0")
	}
	return verdict, nil
}

func forwards(v *visit, family byte) (on bool, err error) {
	all := netconfAll
	attribute, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: netconfIfindex, Data: byteOrder.AppendUint32(nil, uint32(all))}})
	if err != nil {
		return false, fmt.Errorf("ask for forwarding: %w", err)
	}
	err = v.route(request(unix.RTM_GETNETCONF, 0, append([]byte{family, 0, 0, 0}, attribute...)), func(data []byte) error {
		on, err = parseForwarding(data)
		return err
	})
	return on, err
}

func parseForwarding(data []byte) (on bool, err error) {
	err = attributes(data, netconfHeader, func(d *netlink.AttributeDecoder) {
		if d.Type() == netconfForwarding {
			on = d.Uint32() != 0
		}
	})
	return on, err
}
