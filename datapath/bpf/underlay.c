// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Between the network cards, which are the machine's, and the substrate, which has a namespace of its own. A veth
 * pair joins them, the uplink.
 *
 *	network card, tc ingress: underlay_ingress      hands tunnels' packets to the uplink; all others pass
 *	the same, of packets:     underlay_packets      also where no Ethernet header comes with them
 *	uplink, substrate's end:  uplink_ingress        decapsulates: frames enter their link at the tunnel's port, or
 *	                                                come to the packet program whose UDP port they are for
 *	uplink, machine's end:    underlay_egress       routes encapsulated packets: they leave by a network card
 *
 * The line card of tunnels (tunnelcard.c) does all of it at once for most frames; then these programs never see them.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "checksum.h"
#include "outer.h"
#include "outer_route.h"
#include "shrink.h"
#include "skb.h"
#include "tunnel.h"
#include "udp.h"

static __always_inline bool load_above(const struct __sk_buff *skb, __u32 network, struct outer_header *h)
{
	__u32 above = network + (is_outer_ip4(h) ? sizeof(h->ip4) : sizeof(h->ip6));

	return !bpf_skb_load_bytes(skb, above, &h->gre, sizeof(h->vxlan));
}

/* Returns false where there is less than the shortest outer packet. */
static __always_inline bool load_outer(const struct __sk_buff *skb, struct outer_header *h)
{
	return !bpf_skb_load_bytes(skb, 0, &h->eth, ETH_HLEN + sizeof(h->ip6)) && load_above(skb, ETH_HLEN, h);
}

/* The same of a UDP packet that is shorter than any tunnel's. */
static __always_inline bool load_short_datagram(const struct __sk_buff *skb, struct outer_header *h)
{
	const __u32 above = ETH_HLEN + sizeof(h->ip4);

	return with_udp && !bpf_skb_load_bytes(skb, 0, &h->eth, above) && h->eth.h_proto == bpf_htons(ETH_P_IP) &&
	       !bpf_skb_load_bytes(skb, above, &h->vxlan.udp, sizeof(h->vxlan.udp));
}

/* The same of a packet without an Ethernet header, which is made up. */
static __always_inline bool load_packet(const struct __sk_buff *skb, struct outer_header *h)
{
	h->eth.h_proto = skb->protocol;
	return !bpf_skb_load_bytes(skb, 0, &h->ip6, sizeof(h->ip6)) && load_above(skb, 0, h);
}

/* Could it be a tunnel's packet, with its IP header here? Most are not, which costs them no more than this. */
static __always_inline bool looks_ours(const struct __sk_buff *skb, __u32 network)
{
	const struct ipv6hdr *ip6 = (void *)(long)skb->data + network;
	const struct iphdr *ip4 = (void *)(long)skb->data + network;
	__u8 protocol;

	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return false;
	if ((void *)(ip6 + 1) > (void *)(long)skb->data_end)
		return true; /* in fragments, perhaps */
	if (skb->protocol == bpf_htons(ETH_P_IP))
		protocol = ip4->protocol;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		protocol = ip6->nexthdr;
	else
		return false;
	return protocol == IPPROTO_GRE || protocol == IPPROTO_UDP;
}

static __always_inline int drop_packet(enum reason why)
{
	count_packet_drop(why);
	return TC_ACT_SHOT;
}

/* Is it for a UDP port of a packet program? */
static __always_inline bool is_for_program(const struct __sk_buff *skb, __u32 network)
{
	struct datagram d = {};

	if (!with_udp || bpf_skb_load_bytes(skb, network, &d.ip, sizeof(d.ip) + sizeof(d.udp)))
		return false;
	d.eth.h_proto = skb->protocol;
	return find_udp_owner(&d);
}

/*
 * The way into the substrate. What is for packet programs takes it through the device, which finishes checksums that
 * a sender on this machine has left to the network card, and cuts super-frames; of tunnels' packets the headers inside
 * are as they were, so they need no device.
 */
static __always_inline int into_substrate(const struct uplink *u, bool for_program)
{
	return for_program ? bpf_redirect(u->outside, 0) : bpf_redirect_peer(u->outside, 0);
}

/* Does a packet end within the header of a tunnel that ends here? The machine's own stack would tell nobody. */
__noinline int is_cut(struct __sk_buff *skb, __u32 network)
{
	const __u32 least = 4; /* of what is above IP: find_kind() looks at this */
	struct outer_header h = {};

	h.eth.h_proto = skb->protocol;
	if (is_outer_ip4(&h))
		return !bpf_skb_load_bytes(skb, network, &h.ip4, sizeof(h.ip4)) &&
		       !bpf_skb_load_bytes(skb, network + sizeof(h.ip4), &h.gre, least) && is_ours(&h);
	return !bpf_skb_load_bytes(skb, network, &h.ip6, sizeof(h.ip6)) &&
	       !bpf_skb_load_bytes(skb, network + sizeof(h.ip6), &h.gre, least) && is_ours(&h);
}

/* Others may have programs behind this one: what passes is theirs (TC_ACT_UNSPEC). */
SEC("tc")
int underlay_ingress(struct __sk_buff *skb)
{
	struct outer_header h = {};
	bool whole, for_program = false;
	const struct uplink *u;

	if (!looks_ours(skb, ETH_HLEN))
		return TC_ACT_UNSPEC;
	whole = load_outer(skb, &h);
	if (!whole || !is_ours(&h)) {
		if (!whole && is_cut(skb, ETH_HLEN))
			return drop_packet(REASON_MALFORMED);
		for_program = is_for_program(skb, ETH_HLEN);
		if (!for_program)
			return TC_ACT_UNSPEC;
	}
	u = find_uplink();
	return u && u->outside ? into_substrate(u, for_program) : TC_ACT_UNSPEC;
}

/*
 * The same at an interface of packets (WireGuard, tun, ipip). Those of tunnels get an Ethernet header, without
 * addresses, which are not looked at here: from then on they are as all others. On the way out bpf_redirect() takes
 * the header off again, where the device has none.
 */
SEC("tc")
int underlay_packets(struct __sk_buff *skb)
{
	struct outer_header h = {};
	bool whole, for_program = false;
	const struct uplink *u;

	if (!looks_ours(skb, 0))
		return TC_ACT_UNSPEC;
	whole = load_packet(skb, &h);
	if (!whole || !is_ours(&h)) {
		if (!whole && is_cut(skb, 0))
			return drop_packet(REASON_MALFORMED);
		for_program = is_for_program(skb, 0);
		if (!for_program)
			return TC_ACT_UNSPEC;
	}
	u = find_uplink();
	if (!u || !u->outside)
		return TC_ACT_UNSPEC;
	if (bpf_skb_change_head(skb, ETH_HLEN, 0) || bpf_skb_store_bytes(skb, 0, &h.eth, sizeof(h.eth), 0))
		return drop_packet(REASON_NO_MEMORY);
	return into_substrate(u, for_program);
}

/* The inner packet's header says what the network outside met. */
static __always_inline enum reason mark_congestion(struct __sk_buff *skb, __u8 outer, __be16 type)
{
	const __u32 at = ETH_HLEN;
	__u8 ecn, head[2];
	__be16 old, new;

	if (outer == NOT_ECT || (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6)))
		return CONTINUE;
	if (bpf_skb_load_bytes(skb, at, head, sizeof(head)))
		return CONTINUE;
	__builtin_memcpy(&old, head, sizeof(old));
	if (type == bpf_htons(ETH_P_IP)) {
		ecn = decapsulate_ecn(head[1] & 3, outer);
		head[1] = (head[1] & ~3) | (ecn & 3);
	} else {
		ecn = decapsulate_ecn(head[1] >> 4 & 3, outer);
		head[1] = (head[1] & ~0x30) | (ecn & 3) << 4;
	}
	if (ecn == ECN_DROP)
		return REASON_CONGESTION;
	__builtin_memcpy(&new, head, sizeof(new));
	if (new == old)
		return CONTINUE;
	if (type == bpf_htons(ETH_P_IP) &&
	    bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), old, new, sizeof(new)))
		return REASON_NO_MEMORY;
	/* An IPv4 header sums to the same as before. */
	if (bpf_skb_store_bytes(skb, at, head, sizeof(head), type == bpf_htons(ETH_P_IP) ? 0 : BPF_F_RECOMPUTE_CSUM))
		return REASON_NO_MEMORY;
	return CONTINUE;
}

#define LEAST sizeof(struct iphdr) /* that the kernel leaves behind an Ethernet header */

/*
 * An inner packet that is shorter. The cut leaves rests of the outer header behind the Ethernet header; the packet is
 * moved there.
 */
struct short_packet {
	__u8 align[3];
	__u8 before; /* what stands before it: Linux 6.1 does not see that a length that is not 0 is at least 1 */
	__u8 bytes[LEAST];
};

static __always_inline bool load_short(struct __sk_buff *skb, __u32 at, __u32 payload, struct short_packet *p)
{
	__u64 n = payload;

	asm volatile("" : "+r"(n)); /* as header_length() */
	return n >= LEAST || !bpf_skb_load_bytes(skb, at - 1, &p->before, n + 1);
}

/* Where the tail cannot be cut off, which not all kernels do, the packet is padded, as it would be on a wire. */
static __always_inline bool store_short(struct __sk_buff *skb, __u32 payload, const struct short_packet *p)
{
	if (payload >= LEAST)
		return true;
	if (bpf_skb_store_bytes(skb, ETH_HLEN, p->bytes, sizeof(p->bytes), BPF_F_RECOMPUTE_CSUM))
		return false;
	bpf_skb_change_tail(skb, ETH_HLEN + payload, 0);
	return true;
}

/*
 * Takes the outer headers off, those between the first Ethernet header and what is behind the second. The kernel does
 * that to IP packets, and it goes by what it takes the packet for: the family of the outer one. So that is changed
 * first, to the inner one's. What is no IP packet inside, or too short for one, is unread (frame.h).
 */
static __always_inline enum reason strip(struct __sk_buff *skb, struct frame *f, const struct outer *o,
					 struct ethhdr *eth)
{
	const __s32 grows = sizeof(struct ipv6hdr) - sizeof(struct iphdr);
	__u32 payload = o->total - o->length - ETH_HLEN;
	struct short_packet rest = {};
	__s32 cut = o->length;
	bool v6;

	if (bpf_skb_load_bytes(skb, o->length, eth, sizeof(*eth)) ||
	    !load_short(skb, o->length + ETH_HLEN, payload, &rest))
		return REASON_MALFORMED;
	if (skb->len > o->total) /* padding; where it cannot be cut off, it is the inner frame's */
		bpf_skb_change_tail(skb, o->total, 0);
	v6 = eth->h_proto == bpf_htons(ETH_P_IPV6) && payload >= sizeof(struct ipv6hdr);
	f->unread = !v6 && (eth->h_proto != bpf_htons(ETH_P_IP) || payload < sizeof(struct iphdr));
	if (v6 != o->v6) {
		if (bpf_skb_change_proto(skb, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), 0))
			return REASON_NO_MEMORY;
		cut += v6 ? grows : -grows;
	}
	if (payload < LEAST)
		cut -= LEAST - payload;
	if (bpf_skb_adjust_room(skb, -cut, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return f->segment ? REASON_SUPER_FRAME : REASON_NO_MEMORY;
	if (bpf_skb_store_bytes(skb, 0, eth, sizeof(*eth), 0) || !store_short(skb, payload, &rest))
		return REASON_NO_MEMORY;
	return CONTINUE;
}

/* What comes out of the tunnel enters its link at the tunnel's port. */
static __always_inline enum reason decapsulate(struct __sk_buff *skb, struct frame *f, const struct outer *o)
{
	struct ethhdr eth;
	enum reason why;

	f->segment = skb->gso_size;
	why = strip(skb, f, o, &eth);
	if (why != CONTINUE)
		return why;
	bpf_set_hash_invalid(skb); /* it was the outer packet's */
	return f->unread ? CONTINUE : mark_congestion(skb, o->ecn, eth.h_proto);
}

/* Whose is it, and what is inside? Returns an enum reason. */
__noinline int receive_packet(struct __sk_buff *skb, struct frame *f)
{
	struct outer_header h = {};
	struct outer o = {};
	enum reason why;
	__u32 met;

	if (!f)
		return REASON_STRAY;
	f->from = 0;
	f->unread = 0;
	if (skb->vlan_present || !load_outer(skb, &h) || find_kind(&h) == TUNNEL_NONE)
		return REASON_STRAY;
	why = read_outer(&h, skb->len, skb->gso_size, &o);
	if (why == CONTINUE)
		f->from = find_tunnel(&o);
	if (!f->from && !is_ours(&h))
		return REASON_STRAY;
	if (why != CONTINUE)
		return why;
	if (!f->from)
		return REASON_UNKNOWN_TUNNEL;
	if (o.summed && !verify_udp(skb, o.total, o.v6))
		return REASON_CHECKSUM;
	count_received(skb->len, false);
	count_emerged(f->from, o.total - o.length);
	if (with_met) {
		met = met_before(f->from, &o);
		skb->mark = met ? MARK_OURS | met : 0;
		skb->tc_index = 0; /* no program chose a queue here (port.c) */
	}
	return decapsulate(skb, f, &o);
}

/*
 * Makes a frame of a packet for a packet program: an Ethernet header of zeros, and the payload. Returns an enum reason;
 * REASON_STRAY: it is for none.
 */
__noinline int open_datagram(struct __sk_buff *skb, struct frame *f)
{
	const __u8 zeros[ETH_HLEN] = {};
	const struct udp_owner *o;
	struct datagram d = {};
	__u32 total;

	if (!with_udp || !f || skb->vlan_present || bpf_skb_load_bytes(skb, 0, &d.eth, DATAGRAM_HEAD))
		return REASON_STRAY;
	o = find_udp_owner(&d);
	if (!o)
		return REASON_STRAY;
	if (skb->gso_size)
		return REASON_SUPER_FRAME;
	if (!is_datagram(&d, skb->len))
		return REASON_MALFORMED;
	total = bpf_ntohs(d.ip.tot_len) + ETH_HLEN;
	if (skb->len > total && bpf_skb_change_tail(skb, total, 0)) /* padding */
		return REASON_NO_MEMORY;
	if (!cut_front(skb, UDP_HEADERS, total) || bpf_skb_store_bytes(skb, 0, zeros, sizeof(zeros), 0))
		return REASON_NO_MEMORY;
	bpf_set_hash_invalid(skb);
	note_sender(f, o, &d);
	return CONTINUE;
}

/* To the packet program whose UDP port the packet is for. */
static __always_inline int to_program(struct __sk_buff *skb, struct frame *f)
{
	enum reason why = open_datagram(skb, f);

	if (why == CONTINUE) {
		f->returned = RETURNED_SENT;
		f->flood = 0;
		f->unread = true;
		bpf_tail_call(skb, &node_programs, f->router);
		f->outer_port = 0;
		why = REASON_NO_PROGRAM;
	}
	return drop_packet(why);
}

SEC("tc")
int uplink_ingress(struct __sk_buff *skb)
{
	struct frame *f = find_frame();
	enum reason why;
	__u32 from;
	__u8 unread;

	if (!f)
		return TC_ACT_SHOT;
	why = receive_packet(skb, f);
	from = f->from;
	unread = f->unread;
	if (!from)
		return with_udp && why == REASON_STRAY ? to_program(skb, f) : drop_packet(why);
	init_frame(skb, f);
	f->from = from;
	f->unread = unread;
	if (why == CONTINUE)
		why = cross(f);
	if (why == CONTINUE)
		why = pass_nodes(skb, f);
	return leave(skb, f, why);
}

/*
 * Looks the route up in the kernel, and caches it. TC_ACT_UNSPEC: it is in r; else it is the verdict on the packet,
 * whose work is done.
 */
static __always_inline int resolve_route(struct __sk_buff *skb, const struct outer_header *h, const struct uplink *u,
					 const struct route_key *k, __u64 now, struct outer_route *r)
{
	long found = find_outer_route(skb, &h->ip4, &h->gre, !is_outer_ip4(h), skb->ifindex, skb->gso_size, r);
	struct egress_route *cached;

	switch (found) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return drop_packet(REASON_TOO_BIG);
	default:
		return drop_packet(REASON_NO_ROUTE);
	}
	if (!is_exit(u, r->nic))
		return drop_packet(REASON_OFF_UNDERLAY);
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		return bpf_redirect_neigh(r->nic, NULL, 0, 0);
	if (is_kernels_turn(&k->to, now)) {
		bpf_map_update_elem(&asked, &k->to, &now, BPF_ANY);
		return bpf_redirect_neigh(r->nic, NULL, 0, 0);
	}
	cached = find_egress_route(k);
	if (cached) {
		cached->route = *r;
		cached->key = *k;
		cached->until = now + ROUTE_LIFETIME;
	}
	return TC_ACT_UNSPEC;
}

/* What comes from the substrate has no addresses yet. */
SEC("tc")
int underlay_egress(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	const struct uplink *u = find_uplink();
	const struct egress_route *cached;
	struct outer_header h = {};
	struct outer_route r = {};
	struct route_key k = {};
	int verdict;

	if (!u || (!load_outer(skb, &h) && !load_short_datagram(skb, &h)) || !same_mac(h.eth.h_source, r.from))
		return drop_packet(REASON_STRAY);
	make_route_key(&h, &k);
	cached = find_egress_route(&k);
	if (cached && is_fresh(cached, &k, now)) {
		r = cached->route;
		if (!skb->gso_size && skb->len > r.mtu + ETH_HLEN)
			return drop_packet(REASON_TOO_BIG);
	} else {
		verdict = resolve_route(skb, &h, u, &k, now, &r);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	}
	if (bpf_skb_store_bytes(skb, 0, r.to, sizeof(r.to) + sizeof(r.from), 0))
		return drop_packet(REASON_NO_MEMORY);
	return bpf_redirect(r.nic, 0);
}
