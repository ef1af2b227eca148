package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The programs of the underlay are direct-action filters of the clsact qdiscs of a few devices, which are the
// machine's: others may have filters there, which are left alone. Programs that let a frame pass say TC_ACT_UNSPEC,
// after which the next filter is asked. It is done with netlink messages of our own because whoever implements Hook
// knows the substrate's namespace alone.
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
	err := requestTC(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, tcMessage(ifindex, clsact, clsactParent, 0),
		attribute(tcaKind, zeroed("clsact")))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("attach %s to device %d: add clsact qdisc: %w", name, ifindex, err)
	}
	options := append(attribute(tcaBPFFD, number(uint32(p.FD()))), attribute(tcaBPFName, zeroed(name))...)
	options = append(options, attribute(tcaBPFFlg, number(directAction))...)
	err = requestTC(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, ourFilter(ifindex),
		attribute(tcaKind, zeroed("bpf")), attribute(tcaOptions|unix.NLA_F_NESTED, options))
	if err != nil {
		return fmt.Errorf("attach %s to device %d: %w", name, ifindex, err)
	}
	return nil
}

// detachIngress undoes attachIngress. The qdisc goes, too, unless others have filters there.
func detachIngress(ifindex int) error {
	err := requestTC(unix.RTM_DELTFILTER, 0, ourFilter(ifindex))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) { // no filter, no qdisc, no device
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
	b := make([]byte, 4, sizeofTCMsg)
	b = append(b, number(uint32(ifindex))...)
	b = append(b, number(handle)...)
	b = append(b, number(parent)...)
	return append(b, number(info)...)
}

func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func zeroed(s string) []byte { return append([]byte(s), 0) }

// requestTC sends a message to the thread's namespace and waits for the kernel's word on it.
func requestTC(kind, flags uint16, parts ...[]byte) error {
	_, err := exchange(kind, flags|unix.NLM_F_ACK, parts...)
	return err
}

// countFilters counts the filters that a device has at a hook.
func countFilters(ifindex int, parent uint32) (int, error) {
	return exchange(unix.RTM_GETTFILTER, unix.NLM_F_DUMP, tcMessage(ifindex, 0, parent, 0))
}

// exchange sends a message and reads answers up to the last. It counts those that are filters with a handle (each
// priority also shows up once by itself).
func exchange(kind, flags uint16, parts ...[]byte) (filters int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("open netlink socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	m := make([]byte, unix.NLMSG_HDRLEN)
	for _, p := range parts {
		m = append(m, p...)
	}
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for b := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return filters, err
		}
		found, last, err := readAnswers(b[:n])
		filters += found
		if last || err != nil {
			return filters, err
		}
	}
}

func readAnswers(b []byte) (filters int, last bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			break
		}
		switch body := b[unix.NLMSG_HDRLEN:n]; {
		case kind == unix.NLMSG_DONE:
			return filters, true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			if errno := int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return filters, true, unix.Errno(-errno)
			}
			return filters, true, nil
		case kind == unix.RTM_NEWTFILTER && len(body) >= sizeofTCMsg && binary.NativeEndian.Uint32(body[8:]) != 0:
			filters++
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return filters, false, nil
}
