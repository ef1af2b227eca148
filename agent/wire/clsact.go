package wire

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/pergola-net/pergola/datapath"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// clsact attaches programs as a direct-action filter of a clsact qdisc, for kernels before 6.6. It lives as long as the device.
type clsact struct{ nl *conn }

const (
	tcClsact  = 0xfffffff1 // TC_H_CLSACT
	tcIngress = 0xfffffff2 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)

	filterHandle   = 1
	filterPriority = 1

	directAction = 1 // TCA_BPF_FLAG_ACT_DIRECT
)

// Attach implements datapath.Hook. A filter of the same handle and priority is replaced at once.
func (h clsact) Attach(ifindex int, p *ebpf.Program) error {
	err := h.nl.do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, tcHeader(ifindex, tcClsact&0xffff0000, tcClsact), attrString(nl.TCA_KIND, "clsact"))
	if errors.Is(err, unix.ENODEV) {
		return datapath.ErrNoDevice
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	header := tcHeader(ifindex, filterHandle, tcIngress)
	header.Info = filterPriority<<16 | uint32(bigEndian(unix.ETH_P_ALL))
	return h.nl.do(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, header, attrString(nl.TCA_KIND, "bpf"),
		attrNest(nl.TCA_OPTIONS,
			attrU32(nl.TCA_BPF_FD, uint32(p.FD())),
			attrString(nl.TCA_BPF_NAME, "pergola"),
			attrU32(nl.TCA_BPF_FLAGS, directAction)))
}

func bigEndian(v uint16) uint16 { return nl.Swap16(v) }
