package eligible

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xtables is what distinguishes the older iptables from ip6tables. Their tables announce nothing, but /proc names
// those that a namespace has, and there is none before somebody uses one.
type xtables struct {
	command, names string
	family, level  int
	target         int // offset of target_offset in struct ipt_entry or ip6t_entry
}

var xtablesFamilies = [2]xtables{
	{command: "iptables", names: "ip_tables_names", family: unix.AF_INET, level: unix.SOL_IP, target: 88},
	{command: "ip6tables", names: "ip6_tables_names", family: unix.AF_INET6, level: unix.SOL_IPV6, target: 140},
}

// Of linux/netfilter_ipv4/ip_tables.h; those of IPv6 are the same.
const (
	xtGetInfo       = 64
	xtGetEntries    = 65
	xtName          = 32
	xtInfoSize      = 84
	xtEntriesHeader = 40
	xtVerdict       = 32       // offset within a standard target
	xtAccept        = -(1 + 1) // -NF_ACCEPT - 1
	xtMaxSize       = 1 << 20  // of a table that is read: some thousand chains
)

// xtHooks are those that forwarded packets meet.
var xtHooks = []struct {
	number int
	name   string
}{{unix.NF_INET_PRE_ROUTING, "PREROUTING"}, {unix.NF_INET_FORWARD, "FORWARD"}, {unix.NF_INET_POST_ROUTING,
	"POSTROUTING"}}

// xtInfo says where in a table the chains of the hooks begin, and where their policies are.
type xtInfo struct {
	hooks            uint32
	begin, underflow [unix.NF_INET_NUMHOOKS]uint32
	size             uint32
}

// openNames opens the list of tables, in the namespace of the calling thread. nil: the kernel has no such tables (yet).
func (x xtables) openNames() (*os.File, error) {
	f, err := os.Open("/proc/thread-self/net/" + x.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

func lookAtXtables(v *visit) (Verdict, error) {
	var verdict Verdict
	names, err := v.node.oldTables()
	if err != nil {
		return verdict, err
	}
	for i, x := range xtablesFamilies {
		for _, table := range names[i] {
			reasons, err := x.judge(v, table)
			if err != nil {
				return verdict, fmt.Errorf("%s table %s: %w", x.command, table, err)
			}
			if x.family == unix.AF_INET {
				verdict.IPv4 = append(verdict.IPv4, reasons...)
			} else {
				verdict.IPv6 = append(verdict.IPv6, reasons...)
			}
		}
	}
	return verdict, nil
}

// judge looks at one table of the namespace of the calling thread.
func (x xtables) judge(v *visit, table string) ([]string, error) {
	fd, err := unix.Socket(x.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var name [xtName]byte
	copy(name[:xtName-1], table)
	buf := v.room(xtInfoSize)
	copy(buf, name[:])
	if err := getsockopt(fd, x.level, xtGetInfo, buf); err != nil {
		return nil, fmt.Errorf("read size: %w", err)
	}
	info := parseXtInfo(buf)
	if info.size > xtMaxSize {
		return nil, fmt.Errorf("read %d bytes: %w", info.size, unix.E2BIG)
	}
	var entries []byte
	if !info.hasRules() { // then only the policies are of interest
		entries = v.room(xtEntriesHeader + int(info.size))
		copy(entries, name[:])
		byteOrder.PutUint32(entries[xtName:], info.size)
		if err := getsockopt(fd, x.level, xtGetEntries, entries); err != nil {
			return nil, fmt.Errorf("read entries: %w", err)
		}
		entries = entries[xtEntriesHeader:]
	}
	return x.reasons(table, info, entries), nil
}

func parseXtInfo(buf []byte) xtInfo {
	i := xtInfo{hooks: byteOrder.Uint32(buf[xtName:]), size: byteOrder.Uint32(buf[xtInfoSize-4:])}
	for h := range i.begin {
		i.begin[h] = byteOrder.Uint32(buf[xtName+4+4*h:])
		i.underflow[h] = byteOrder.Uint32(buf[xtName+24+4*h:])
	}
	return i
}

// hasRules reports whether a chain that forwarded packets meet has more than its policy.
func (i xtInfo) hasRules() bool {
	for _, h := range xtHooks {
		if i.hooks&(1<<h.number) != 0 && i.begin[h.number] != i.underflow[h.number] {
			return true
		}
	}
	return false
}

// reasons names the chains with rules and, where entries are given, those whose policy does not accept.
func (x xtables) reasons(table string, info xtInfo, entries []byte) []string {
	var reasons []string
	for _, h := range xtHooks {
		if info.hooks&(1<<h.number) == 0 {
			continue
		}
		where := fmt.Sprintf("%s table %s, chain %s", x.command, table, h.name)
		switch {
		case info.begin[h.number] != info.underflow[h.number]:
			reasons = append(reasons, where+": rules")
		case entries != nil && !x.accepts(entries, info.underflow[h.number]):
			reasons = append(reasons, where+": policy")
		}
	}
	return reasons
}

// accepts reports whether the entry at an offset, a chain's policy, is ACCEPT.
func (x xtables) accepts(entries []byte, at uint32) bool {
	if uint64(at)+uint64(x.target)+2 > uint64(len(entries)) {
		return false
	}
	entry := entries[at:]
	target := int(byteOrder.Uint16(entry[x.target:]))
	if target+xtVerdict+4 > len(entry) {
		return false
	}
	standard := entry[target+2] == 0 // has no name
	return standard && int32(byteOrder.Uint32(entry[target+xtVerdict:])) == xtAccept
}

func getsockopt(fd, level, option int, buf []byte) error {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
