package eligible

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestOldIptables(t *testing.T) {
	testkit.Root(t)
	if here := oldTablesHere(); !here[0] || !here[1] {
		testkit.KernelModule(t, "iptable_filter")
		testkit.KernelModule(t, "ip6table_filter")
	}
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, quick))
	b.policy(xtablesFamilies[0], unix.NF_INET_LOCAL_IN, xtDrop)
	b.examined()
	b.await("", "")
	b.policy(xtablesFamilies[0], unix.NF_INET_FORWARD, xtDrop)
	b.await("iptables table filter, chain FORWARD: policy", "")
	b.policy(xtablesFamilies[1], unix.NF_INET_FORWARD, xtDrop)
	b.await("iptables table filter, chain FORWARD: policy", "ip6tables table filter, chain FORWARD: policy")
	b.policy(xtablesFamilies[0], unix.NF_INET_FORWARD, xtAccept)
	b.policy(xtablesFamilies[1], unix.NF_INET_FORWARD, xtAccept)
	b.await("", "")
}

const xtDrop = -1

// policy sets the policy of a chain of table filter, which has no rules: what `iptables -P` does.
func (b *watched) policy(x xtables, hook, verdict int) {
	b.t.Helper()
	err := netns.In(b.ns, func() error {
		fd, err := unix.Socket(x.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		head := make([]byte, xtInfoSize)
		copy(head, "filter")
		if err := getsockopt(fd, x.level, xtGetInfo, head); err != nil { // the table exists from here on
			return fmt.Errorf("read size: %w", err)
		}
		info := parseXtInfo(head)
		entries := make([]byte, xtEntriesHeader+info.size)
		copy(entries, "filter")
		byteOrder.PutUint32(entries[xtName:], info.size)
		if err := getsockopt(fd, x.level, xtGetEntries, entries); err != nil {
			return fmt.Errorf("read entries: %w", err)
		}
		entries = entries[xtEntriesHeader:]
		entry := entries[info.underflow[hook]:]
		target := int(byteOrder.Uint16(entry[x.target:]))
		byteOrder.PutUint32(entry[target+xtVerdict:], uint32(int32(verdict)))

		// struct ipt_replace: name, hooks, number, size, begins, underflows, number of counters, where to put
		// the old ones
		count := byteOrder.Uint32(head[xtInfoSize-8:])
		counters := make([]byte, 16*count)
		replace := slices.Concat(head[:xtName+4], head[xtInfoSize-8:], head[xtName+4:xtName+44])
		replace = byteOrder.AppendUint32(replace, count)
		replace = byteOrder.AppendUint64(replace, uint64(uintptr(unsafe.Pointer(&counters[0]))))
		replace = append(replace, entries...)
		err = unix.SetsockoptString(fd, x.level, xtGetInfo, string(replace)) // the same number means to replace
		runtime.KeepAlive(counters)
		return err
	})
	if err != nil {
		b.t.Fatalf("set %s policy: %v", x.command, err)
	}
}
