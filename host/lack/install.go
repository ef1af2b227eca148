package lack

import (
	"os"
	"slices"
	"strings"
)

// Install is the line that installs packages, named as Debian does, on this machine; "" if there are none.
func Install(packages []string) string {
	release, _ := os.ReadFile("/etc/os-release") // a machine without it is one of an unknown distribution
	return InstallOn(string(release), packages)
}

// InstallOn is Install for a distribution, by the text of its /etc/os-release (os-release(5)).
func InstallOn(release string, packages []string) string {
	if len(packages) == 0 {
		return ""
	}
	families := familiesOf(release)
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(families, n) })
	}
	switch {
	case has("debian", "ubuntu"):
		return "apt-get install " + strings.Join(packages, " ")
	case has("fedora", "rhel", "centos"):
		names := slices.Clone(packages)
		for i, name := range names {
			if other, ok := fedora[name]; ok {
				names[i] = other
			}
		}
		return "dnf install " + strings.Join(names, " ")
	}
	return "what Debian has in " + strings.Join(packages, ", ")
}

// familiesOf gives the distribution, and those that it descends from.
func familiesOf(release string) (names []string) {
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			names = append(names, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return names
}

// fedora has the names of packages that Fedora and its descendants name otherwise than Debian.
var fedora = map[string]string{
	"bird2": "bird", "bind9-dnsutils": "bind-utils", "conntrack": "conntrack-tools", "iproute2": "iproute",
	"iptables": "iptables-nft", "iputils-ping": "iputils", "mtr-tiny": "mtr", "netcat-openbsd": "nmap-ncat",
	"python3-scapy": "scapy", "tshark": "wireshark-cli",
}

// Package names the package of Debian that brings a program which networks often use; "": none is known.
func Package(program string) string {
	for name, programs := range brings {
		if slices.Contains(strings.Fields(programs), program) {
			return name
		}
	}
	return ""
}

// brings lists the programs of packages.
var brings = map[string]string{
	"arping": "arping", "bind9-dnsutils": "dig nslookup", "bird2": "bird birdc", "bridge-utils": "brctl",
	"conntrack": "conntrack", "curl": "curl", "dnsmasq": "dnsmasq", "ethtool": "ethtool", "frr": "vtysh",
	"haproxy": "haproxy", "hping3": "hping3", "iperf": "iperf", "iperf3": "iperf3", "iproute2": "bridge ip ss",
	"ipset": "ipset", "iptables": "iptables ip6tables", "iputils-ping": "ping", "keepalived": "keepalived",
	"lldpd": "lldpcli lldpd", "mtr-tiny": "mtr", "net-tools": "arp ifconfig netstat route",
	"netcat-openbsd": "nc", "nftables": "nft", "nginx": "nginx", "nmap": "nmap", "python3": "python3",
	"python3-scapy": "scapy", "socat": "socat", "strace": "strace", "tcpdump": "tcpdump",
	"traceroute": "traceroute", "tshark": "tshark", "wget": "wget", "wireguard-tools": "wg wg-quick",
}
