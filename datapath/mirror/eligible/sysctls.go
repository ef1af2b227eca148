package eligible

import (
	"bytes"
	"fmt"
	"os"
)

// learns are the parameters that let a router forward IPv4 by what ICMP has told it, which is in no table that anybody can list. Nothing announces
// that they change: it is noticed when forwarding is looked at, at the latest by the audit.
//
// IPv6 has no such choice. A router takes no redirect (rt6_do_redirect()), and always minds what it has learnt of a path's MTU
// (ip6_finish_output()): see docs/fastpath.md.
var learns = []struct{ path, name, does string }{
	// IN_DEV_RX_REDIRECTS(): on an interface that forwards, this and the interface's own must be set. The kernel takes this one back when
	// forwarding is switched on.
	{"/proc/sys/net/ipv4/conf/all/accept_redirects", "net.ipv4.conf.all.accept_redirects", "follows redirects"},
	// ip_dst_mtu_maybe_forward()
	{"/proc/sys/net/ipv4/ip_forward_use_pmtu", "net.ipv4.ip_forward_use_pmtu", "forwards by path MTUs that it has learnt"},
}

// learnt gives the reasons for IPv4, from within the namespace.
func learnt() (reasons []string, err error) {
	for _, s := range learns {
		value, err := os.ReadFile(s.path)
		if err != nil {
			return nil, fmt.Errorf("read sysctl: %w", err)
		}
		if value = bytes.TrimSpace(value); string(value) != "0" {
			reasons = append(reasons, fmt.Sprintf("%s: %s is %s", s.does, s.name, value))
		}
	}
	return reasons, nil
}
