package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The programs of the underlay are direct-action filters of the clsact qdiscs of a few devices, which are the
// machine's: others may have filters there, which are left alone. Programs that pass a frame return TC_ACT_UNSPEC,
// after which the next filter runs.
const (
	clsact         = 0xffff0000 // handle of the qdisc
	clsactParent   = 0xfffffff1 // TC_H_CLSACT
	clsactIngress  = 0xfffffff2 // where filters hang
	clsactEgress   = 0xfffffff3
	filterPriority = 7470 // ours among the filters of a device
	filterHandle   = 1

	tcaKind, tcaOptions             = 1, 2    // TCA_KIND, TCA_OPTIONS
	tcaBPFFD, tcaBPFName, tcaBPFFlg = 6, 7, 8 // TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS
	directAction                    = 1       // TCA_BPF_FLAG_ACT_DIRECT
	sizeofTCMsg                     = 20
)

// attachIngress makes a program look at what comes in at a device of the thread's namespace, in the place of an older
// one of ours.
func attachIngress(ifindex int, name string, p *ebpf.Program) error {
	err := requestTC(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		tcMessage(ifindex, clsact, clsactParent, 0),
		rtnl.String(tcaKind, "clsact"))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("attach %s to device %d: add clsact qdisc: %w", name, ifindex, err)
	}
	return setFilter(ifindex, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, name, p)
}

// replaceIngress puts a program in the place of an older one of ours. found is false where there is none.
func replaceIngress(ifindex int, name string, p *ebpf.Program) (found bool, err error) {
	err = setFilter(ifindex, unix.NLM_F_REPLACE, name, p)
	if isFilterless(err) {
		return false, nil
	}
	return true, err
}

func setFilter(ifindex int, flags uint16, name string, p *ebpf.Program) error {
	options := rtnl.Nest(tcaOptions|unix.NLA_F_NESTED, rtnl.U32(tcaBPFFD, uint32(p.FD())),
		rtnl.String(tcaBPFName, name),
		rtnl.U32(tcaBPFFlg, directAction))
	err := requestTC(unix.RTM_NEWTFILTER, flags, ourFilter(ifindex), rtnl.String(tcaKind, "bpf"), options)
	if err != nil {
		return fmt.Errorf("attach %s to device %d: %w", name, ifindex, err)
	}
	return nil
}

// isFilterless reports whether there is no filter of ours, no qdisc for it, or no device.
func isFilterless(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}

// detachIngress undoes attachIngress. The qdisc goes, too, unless others have filters there.
func detachIngress(ifindex int) error {
	err := requestTC(unix.RTM_DELTFILTER, 0, ourFilter(ifindex))
	if isFilterless(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach the underlay's program from device %d: %w", ifindex, err)
	}
	for _, parent := range []uint32{clsactIngress, clsactEgress} {
		others, err := countFilters(ifindex, parent)
		if err != nil {
			return fmt.Errorf("look for filters of others at device %d: %w", ifindex, err)
		}
		if others > 0 {
			return nil
		}
	}
	if err := requestTC(unix.RTM_DELQDISC, 0, tcMessage(ifindex, clsact, clsactParent, 0)); err != nil {
		return fmt.Errorf("delete clsact qdisc of device %d: %w", ifindex, err)
	}
	return nil
}

func ourFilter(ifindex int) []byte {
	const allProtocols = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	return tcMessage(ifindex, filterHandle, clsactIngress, filterPriority<<16|allProtocols)
}

func tcMessage(ifindex int, handle, parent, info uint32) []byte {
	return rtnl.Encode(struct { // tcmsg
		Family               uint32
		Ifindex              int32
		Handle, Parent, Info uint32
	}{0, int32(ifindex), handle, parent, info})
}

// requestTC sends a message to the thread's namespace and waits for the kernel's result.
func requestTC(kind, flags uint16, header []byte, attrs ...rtnl.Attr) error {
	c, err := rtnl.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	return errors.Join(c.Do(kind, flags, header, attrs...), c.Close())
}

// countFilters counts the filters that a device has at a hook. Each priority is also listed by itself, without a
// handle.
func countFilters(ifindex int, parent uint32) (filters int, err error) {
	c, err := rtnl.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	all, err := c.Dump(unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, tcMessage(ifindex, 0, parent, 0))
	for _, f := range all {
		if len(f) >= sizeofTCMsg && binary.NativeEndian.Uint32(f[8:]) != 0 {
			filters++
		}
	}
	return filters, err
}
