package slice

import "testing"

func TestSysctlPathIsDecidedByTheFirstSeparator(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward": "net/ipv4/ip_forward", "net/ipv4/ip_forward": "net/ipv4/ip_forward",
		"net.ipv4.conf.eth1/7.forwarding": "net/ipv4/conf/eth1.7/forwarding",
		"net/ipv4/conf/eth1.7/forwarding": "net/ipv4/conf/eth1.7/forwarding",
		"net.//.kernel.core_pattern":      "net/../kernel/core_pattern", // who writes it must refuse that
	} {
		if got := SysctlPath(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}
