package slice

import "strings"

// SysctlPath gives the file of a kernel parameter below /proc/sys. As in sysctl(8), the first separator decides which
// one it is, so that names of interfaces can contain dots: net/ipv4/conf/eth1.7/forwarding and
// net.ipv4.conf.eth1/7.forwarding are the same.
func SysctlPath(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		return strings.NewReplacer(".", "/", "/", ".").Replace(key)
	}
	return key
}

// NetSysctl reports whether a kernel parameter belongs to a network namespace. Such a parameter can change while a node
// runs; the others are set when its container is made.
func NetSysctl(key string) bool { return strings.HasPrefix(SysctlPath(key), "net/") }
