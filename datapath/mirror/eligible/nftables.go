package eligible

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Of linux/netfilter/nfnetlink.h, nf_tables.h.
const (
	nftHeader       = 4 // struct nfgenmsg: family, version, resource
	nftInetIngress  = 5 // NF_INET_INGRESS
	flowtableTable  = 1
	flowtableName   = 2
	nftPolicyAccept = 1
)

// chain is an nftables chain. One without a hook is only met from another.
type chain struct {
	family            byte
	table, name, kind string
	hooked            bool
	hook              uint32
	policy            uint32
	rules             uint32 // of a chain with a hook: nothing else refers to it
}

func lookAtNftables(v *visit) (Verdict, error) {
	var verdict Verdict
	err := v.nftables(unix.NFT_MSG_GETCHAIN, func(data []byte) error {
		c, err := parseChain(data)
		if err == nil && c.matters() {
			verdict.add(c.family, "nftables chain %s", c)
		}
		return err
	})
	if err != nil {
		return verdict, err
	}
	err = v.nftables(unix.NFT_MSG_GETFLOWTABLE, func(data []byte) error {
		family, words, err := parseFlowtable(data)
		if err == nil {
			verdict.add(family, "nftables flowtable %s", words)
		}
		return err
	})
	return verdict, err
}

// nftables lists objects of all families.
func (v *visit) nftables(kind uint16, f func(data []byte) error) error {
	ask := rtnl.Request(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP, make([]byte, nftHeader))
	err := v.ask(unix.NETLINK_NETFILTER, ask, f)
	if errors.Is(err, rtnl.ErrAbsent) || errors.Is(err, unix.EINVAL) { // without netfilter; without nf_tables
		return nil
	}
	return err
}

// add adds a reason that concerns a netfilter family.
func (v *Verdict) add(family byte, format string, args ...any) {
	switch family {
	case unix.NFPROTO_IPV4:
		v.ipv4(format, args...)
	case unix.NFPROTO_IPV6:
		v.ipv6(format, args...)
	case unix.NFPROTO_INET, unix.NFPROTO_NETDEV:
		v.both(format, args...)
	}
}

// matters reports whether forwarded packets meet the chain, and anything may happen to them there. A chain for NAT
// has them tracked and may give them another port even when it has no rules.
func (c chain) matters() bool {
	switch {
	case !c.hooked:
		return false
	case c.family == unix.NFPROTO_NETDEV:
	case c.hook == unix.NF_INET_LOCAL_IN, c.hook == unix.NF_INET_LOCAL_OUT:
		return false
	}
	return c.rules > 0 || c.policy != nftPolicyAccept || c.kind == "nat"
}

func (c chain) String() string {
	s := fmt.Sprintf("%s %s %s (%s: %d rules", familyName(c.family), c.table, c.name, hookName(c.family, c.hook),
		c.rules)
	if c.policy != nftPolicyAccept {
		s += ", policy drop"
	}
	return s + ")"
}

func familyName(family byte) string {
	switch family {
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	default:
		return fmt.Sprintf("family %d", family)
	}
}

func hookName(family byte, hook uint32) string {
	switch {
	case family == unix.NFPROTO_NETDEV && hook == unix.NF_NETDEV_EGRESS:
		return "egress"
	case family == unix.NFPROTO_NETDEV, hook == nftInetIngress:
		return "ingress"
	case hook == unix.NF_INET_PRE_ROUTING:
		return "prerouting"
	case hook == unix.NF_INET_FORWARD:
		return "forward"
	case hook == unix.NF_INET_POST_ROUTING:
		return "postrouting"
	default:
		return fmt.Sprintf("hook %d", hook)
	}
}

func parseChain(data []byte) (chain, error) {
	if len(data) < nftHeader {
		return chain{}, fmt.Errorf("read nftables chain: %w", unix.EBADMSG)
	}
	c := chain{family: data[0], policy: nftPolicyAccept}
	err := attributes(data, nftHeader, func(a *rtnl.Attrs) {
		switch a.Kind {
		case unix.NFTA_CHAIN_TABLE:
			c.table = a.Text()
		case unix.NFTA_CHAIN_NAME:
			c.name = a.Text()
		case unix.NFTA_CHAIN_TYPE:
			c.kind = a.Text()
		case unix.NFTA_CHAIN_POLICY:
			c.policy = a.BigU32()
		case unix.NFTA_CHAIN_USE:
			c.rules = a.BigU32()
		case unix.NFTA_CHAIN_HOOK:
			c.hooked = true
			a.Inside(unix.NFTA_HOOK_HOOKNUM, func(a *rtnl.Attrs) { c.hook = a.BigU32() })
		}
	})
	return c, err
}

func parseFlowtable(data []byte) (family byte, words string, err error) {
	var table, name string
	err = attributes(data, nftHeader, func(a *rtnl.Attrs) {
		switch a.Kind {
		case flowtableTable:
			table = a.Text()
		case flowtableName:
			name = a.Text()
		}
	})
	if err != nil {
		return 0, "", err
	}
	return data[0], fmt.Sprintf("%s %s %s", familyName(data[0]), table, name), nil
}
