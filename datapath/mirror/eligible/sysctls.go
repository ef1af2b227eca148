package eligible

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// learns are the parameters that let a router forward IPv4 by what ICMP redirects say, which is in no table that
// anybody can list. The kernel does not announce that they change: package signs tells of it, and without it they are
// noticed when forwarding is looked at, at the latest by the audit.
//
// IPv6 has no such choice. A router takes no redirect (rt6_do_redirect()), and always minds what it has learnt of a
// path's MTU (ip6_finish_output()): see docs/fastpath.md.
var learns = []struct{ path, name, does string }{
	// IN_DEV_RX_REDIRECTS(): on an interface that forwards, this and the interface's own must be set; on one that
	// does not, either. The kernel takes this one back when forwarding is switched on.
	{"/proc/sys/net/ipv4/conf/all/accept_redirects", "net.ipv4.conf.all.accept_redirects", "follows redirects"},
	// ip_dst_mtu_maybe_forward()
	{"/proc/sys/net/ipv4/ip_forward_use_pmtu", "net.ipv4.ip_forward_use_pmtu",
		"forwards by path MTUs that it has learnt"},
}

// learnt gives the reasons for IPv4, from within the namespace.
func learnt() (reasons []string, err error) {
	for _, s := range learns {
		value, err := readSysctl(s.path)
		if err != nil {
			return nil, err
		}
		if value != "0" {
			reasons = append(reasons, fmt.Sprintf("%s: %s is %s", s.does, s.name, value))
		}
	}
	own, err := redirectable()
	return append(reasons, own...), err
}

// redirectable gives the interfaces that do not forward, and so take redirects by a setting of their own, which most
// have. What they say holds for what other interfaces forward, too.
func redirectable() (reasons []string, err error) {
	const conf = "/proc/sys/net/ipv4/conf/"
	entries, err := os.ReadDir(conf)
	if err != nil {
		return nil, fmt.Errorf("list sysctls: %w", err)
	}
	for _, e := range entries {
		device := e.Name()
		if device == "all" || device == "default" || device == "lo" {
			continue
		}
		takes := "0"
		forwards, err := readSysctl(conf + device + "/forwarding")
		if err == nil && forwards == "0" {
			takes, err = readSysctl(conf + device + "/accept_redirects")
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // the interface went
		case err != nil:
			return nil, err
		case takes != "0":
			reasons = append(reasons, fmt.Sprintf("follows redirects: net.ipv4.conf.%s.forwarding is 0, "+
				"and its accept_redirects %s", device, takes))
		}
	}
	return reasons, nil
}

func readSysctl(path string) (string, error) {
	value, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read sysctl: %w", err)
	}
	return string(bytes.TrimSpace(value)), nil
}
