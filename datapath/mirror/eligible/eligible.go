// Package eligible says whether a node may be walked: whether forwarding a frame past its kernel, by the mirror's
// routes alone, gives what its kernel would have given.
//
// A Watcher looks into network namespaces and reports for each of them, and for IPv4 and IPv6 apart, why not:
//
//   - policy rules beyond the kernel's own three, VRFs
//
//     forwarded by what ICMP redirects say
//
//   - nftables chains where forwarded packets pass, flowtables; iptables rules and policies of the older kind
//
//   - qdiscs that somebody set, clsact and ingress among them, and so filters; XDP programs
//
//   - interfaces whose frames another device takes first: ports of a bridge, bond or VRF, what lies below a macvlan
//
//   - xfrm policies for packets that pass, or a default policy that blocks
//
//   - packet sockets that would see passing packets (tcpdump), unless their filter provably refuses them all
//
// What announces itself is looked at when it does. Packet sockets do not: package signs tells of them, and without it
// they are looked at as often as a hundredth of a core allows, within Interval; a socket that is bound, or whose filter
// goes, long after it was opened is noticed within Interval in any case. So are old iptables (the first of a
// namespace's old tables: within four). A node that changes so often that it has to wait
// for its next look counts as being examined meanwhile, which is a reason like all others. So is whatever cannot be
// read. Until its first verdict, a node is not to be walked.
//
// A policy rule leaves traces when it is gone: the kernel goes on asking the (remaining) rules, finds IPv4's table
// local apart from main, and looks up sources in its routes. As long as there are no routes of type local, or in
// table local, but those to the node's own addresses, which is the mirror's business, the first two lead to the same
// routes; for the third, the mirror leaves frames from broadcast addresses to the kernel in any case. So a node
// returns when its rules are gone.
//
// Of no effect on frames that are walked, and so not looked at: what is for or from the node itself (chains of input
// and output, cgroup programs), MPLS, bridging and multicast.
//
// Not seen: tcx programs and netfilter's BPF links, which no namespace lists, and whose loading takes privileges that
// no node has; a macvlan in passthru mode above a node's interface that was moved into a namespace within the node;
// IPVS. And a look is not an instant: an nftables transaction that is refused, and would have emptied a chain, may be
// taken for one that did, until the next audit.
package eligible

import (
	"fmt"
	"slices"
)

// Verdict holds the reasons why a node must forward in its own kernel, as an operator understands them. None: it may
// be walked.
type Verdict struct{ IPv4, IPv6 []string }

// both adds a reason that concerns IPv4 and IPv6.
func (v *Verdict) both(format string, args ...any) {
	v.ipv4(format, args...)
	v.ipv6(format, args...)
}

func (v *Verdict) ipv4(format string, args ...any) {
	v.IPv4 = append(v.IPv4, fmt.Sprintf(format, args...))
}

func (v *Verdict) ipv6(format string, args ...any) {
	v.IPv6 = append(v.IPv6, fmt.Sprintf(format, args...))
}

func (v Verdict) equal(o Verdict) bool {
	return slices.Equal(v.IPv4, o.IPv4) && slices.Equal(v.IPv6, o.IPv6)
}
