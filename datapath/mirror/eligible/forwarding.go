package eligible

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
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
	ask := rtnl.Request(unix.RTM_GETNETCONF, 0, []byte{family}, rtnl.U32(netconfIfindex, uint32(all)))
	err = v.route(ask, func(data []byte) error {
		on, err = parseForwarding(data)
		return err
	})
	return on, err
}

func parseForwarding(data []byte) (on bool, err error) {
	err = attributes(data, netconfHeader, func(a *rtnl.Attrs) {
		if a.Kind == netconfForwarding {
			on = a.U32() != 0
		}
	})
	return on, err
}
