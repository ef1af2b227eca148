package eligible

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Of linux/xfrm.h.
const (
	xfrmGroupPolicy = 4 // XFRMNLGRP_POLICY
	xfrmGetPolicy   = 0x15
	xfrmGetDefault  = 0x28
	xfrmBlock       = 1
	xfrmPolicySize  = 168 // struct xfrm_userpolicy_info
)

// Directions. Others are policies of single sockets.
const (
	xfrmIn  = 0
	xfrmOut = 1
	xfrmFwd = 2
)

// policy is an xfrm policy: which packets are to be transformed, or dropped.
type policy struct {
	family    uint16 // 0: any
	direction byte
	src, dst  netip.Prefix
}

// lookAtXfrm finds policies for packets that pass: they meet those of directions fwd and out. States without a policy
// are for packets of the node itself.
func lookAtXfrm(v *visit) (Verdict, error) {
	var verdict Verdict
	err := v.ask(unix.NETLINK_XFRM, rtnl.Request(xfrmGetPolicy, unix.NLM_F_DUMP, nil), func(data []byte) error {
		p, err := parsePolicy(data)
		if err != nil || p.direction != xfrmOut && p.direction != xfrmFwd {
			return err
		}
		words := fmt.Sprintf("xfrm policy (%s): %s to %s",
			[...]string{xfrmOut: "out", xfrmFwd: "fwd"}[p.direction], p.src, p.dst)
		if p.family != unix.AF_INET6 {
			verdict.ipv4("%s", words)
		}
		if p.family != unix.AF_INET {
			verdict.ipv6("%s", words)
		}
		return nil
	})
	if errors.Is(err, rtnl.ErrAbsent) {
		return verdict, nil
	}
	if err != nil {
		return verdict, err
	}
	err = v.ask(unix.NETLINK_XFRM, rtnl.Request(xfrmGetDefault, 0, make([]byte, 4)), func(data []byte) error {
		// struct xfrm_userpolicy_default: in, fwd, out
		if len(data) >= 3 && (data[1] == xfrmBlock || data[2] == xfrmBlock) {
			verdict.both("xfrm default policy blocks")
		}
		return nil
	})
	if errors.Is(err, unix.EINVAL) { // before kernel 5.14
		err = nil
	}
	return verdict, err
}

func parsePolicy(data []byte) (policy, error) {
	if len(data) < xfrmPolicySize {
		return policy{}, fmt.Errorf("read xfrm policy: %w", unix.EBADMSG)
	}
	p := policy{family: byteOrder.Uint16(data[40:]), direction: data[160]}
	p.dst = xfrmPrefix(p.family, data[0:16], data[42])
	p.src = xfrmPrefix(p.family, data[16:32], data[43])
	return p, nil
}

func xfrmPrefix(family uint16, address []byte, length byte) netip.Prefix {
	if family != unix.AF_INET6 {
		address = address[:4]
	}
	a, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(a, int(length))
}
