package wire

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// clsact attaches the program as a direct-action filter of the clsact qdiscs of all ports. They share one block of
// filters, so the program is there once and is replaced for all of them in one step; lo, which has no traffic, holds
// the block while there is no port. It lives as long as the namespace. docs/decisions/004-clsact-not-tcx.md says why
// this is preferred to tcx.
type clsact struct{ nl *conn }

const (
	tcClsact     = 0xfffffff1 // TC_H_CLSACT
	tcBlock      = -1         // TCM_IFINDEX_MAGIC_BLOCK, an ifindex: the header's parent is the block's number
	ingressBlock = 13         // TCA_INGRESS_BLOCK

	portBlock      = 1
	filterHandle   = 1
	filterPriority = 1

	directAction = 1 // TCA_BPF_FLAG_ACT_DIRECT

	lo = 1 // ifindex in every namespace
)

// Attach implements datapath.Hook.
func (h clsact) Attach(ifindex int, _ *datapath.Program) error {
	err := h.nl.do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		tcHeader(ifindex, tcClsact&0xffff0000, tcClsact),
		rtnl.String(nl.TCA_KIND, "clsact"), rtnl.U32(ingressBlock, portBlock))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Replace implements datapath.Hook.
func (h clsact) Replace(ifindexes []int, p *datapath.Program) error {
	if err := h.Attach(lo, p); err != nil {
		return err
	}
	header := &nl.TcMsg{Ifindex: tcBlock, Handle: filterHandle, Parent: portBlock}
	header.Info = filterPriority<<16 | uint32(nl.Swap16(unix.ETH_P_ALL))
	err := h.nl.do(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, header,
		rtnl.String(nl.TCA_KIND, "bpf"),
		rtnl.Nest(nl.TCA_OPTIONS,
			rtnl.U32(nl.TCA_BPF_FD, uint32(p.FD())),
			rtnl.String(nl.TCA_BPF_NAME, "pergola"),
			rtnl.U32(nl.TCA_BPF_FLAGS, directAction)))
	if err != nil {
		return err
	}
	for _, ifindex := range ifindexes {
		if err := ignoreGone(h.Attach(ifindex, p)); err != nil {
			return fmt.Errorf("device %d: %w", ifindex, err)
		}
	}
	return nil
}
