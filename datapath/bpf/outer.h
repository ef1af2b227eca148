/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Outer headers: what a packet that comes out of a tunnel says, and what one that goes into a tunnel is to say. This
 * file does not know what kind of program it is in.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "frame.h"
#include "header.h"
#include "needs.h"
#include "tunnel.h"

#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000
#define GRE_REFUSED 0x4c07 /* routing and the bits that RFC 2784 wants to be zero, version */
#define VXLAN_KEY 0x08000000
#define VXLAN_PORT 4789
#define FIRST_ENTROPY_PORT 49152 /* RFC 7348, 5 */

/*
 * TTL, or hop limit, of the header that is put before frames of a tunnel that counts: less how many packet programs the
 * frame has met (node.h), so that a frame does not live for ever in a loop of nodes on several machines. Each router of
 * the underlay, and the tunnel itself, count as one more program. Whoever is at 1 has met as many as a frame may: the
 * next program drops it.
 */
#define COUNTING_TTL 255

#ifndef ETH_P_TEB
#define ETH_P_TEB 0x6558
#endif

struct gre {
	__be16 flags;
	__be16 protocol;
	__be32 words[2]; /* key, sequence: what there is of them */
};

struct vxlan {
	struct udphdr udp;
	__be32 flags;
	__be32 vni;
};

/* An outer packet's headers, in a copy. */
struct outer_header {
	__u8 align[2];
	struct ethhdr eth;
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	union {
		struct gre gre;
		struct vxlan vxlan;
	};
};

/* What they say. */
struct outer {
	struct tunnel tunnel; /* whose it would be */
	__u32 length; /* of all headers, Ethernet's included: here the inner frame begins */
	__u32 total; /* here it ends */
	__u8 ecn;
	__u8 v6;
	__u8 summed; /* it has a checksum of all of it, which is to be verified (checksum.h) */
	__u8 ttl;    /* of a host whose tunnels count */
};

/* IPv4-mapped for IPv4. */
struct address {
	__u8 bytes[16];
};

/* Of a packet that may be a tunnel's: find_kind() says so. */
static __always_inline bool is_outer_ip4(const struct outer_header *h)
{
	return !with_ipv6_underlay || h->eth.h_proto == bpf_htons(ETH_P_IP);
}

static __always_inline bool is_outer_ip6(const struct encapsulation *e) { return with_ipv6_underlay && e->v6; }

static __always_inline void map_address(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, sizeof(address));
}

/*
 * Of what kind of tunnel would it be? Of none are packets with IPv4 options, IPv6 extension headers, or a fragment's
 * rest: these are the kernel's.
 */
static __always_inline enum tunnel_kind find_kind(const struct outer_header *h)
{
	__u8 protocol;

	if (h->eth.h_proto == bpf_htons(ETH_P_IP)) {
		if (h->ip4.version != 4 || h->ip4.ihl != 5 || h->ip4.frag_off & bpf_htons(IPV4_OFFSET))
			return TUNNEL_NONE;
		protocol = h->ip4.protocol;
	} else if (with_ipv6_underlay && h->eth.h_proto == bpf_htons(ETH_P_IPV6)) {
		protocol = h->ip6.nexthdr;
	} else {
		return TUNNEL_NONE;
	}
	if (protocol == IPPROTO_GRE && h->gre.protocol == bpf_htons(ETH_P_TEB) && h->gre.flags & bpf_htons(GRE_KEY))
		return TUNNEL_EGRE;
	if (protocol == IPPROTO_UDP && h->vxlan.udp.dest == bpf_htons(VXLAN_PORT))
		return TUNNEL_VXLAN;
	return TUNNEL_NONE;
}

/* Does it come for tunnels that end here? */
static __always_inline bool is_ours(const struct outer_header *h)
{
	struct end e = {};

	e.kind = find_kind(h);
	if (e.kind == TUNNEL_NONE)
		return false;
	if (is_outer_ip4(h))
		map_address(e.local, h->ip4.daddr);
	else
		__builtin_memcpy(e.local, &h->ip6.daddr, sizeof(e.local));
	return bpf_map_lookup_elem(&ends, &e) != NULL;
}

/*
 * A packet with a checksum is refused, right or wrong, as Linux does at a tunnel that sends none (ip_tunnel_rcv()). A
 * sequence number is skipped: a protocol that needs order keeps it itself.
 */
static __always_inline enum reason read_gre(const struct gre *g, struct outer *o)
{
	__u16 flags = bpf_ntohs(g->flags);

	if (flags & GRE_REFUSED)
		return REASON_MALFORMED;
	if (flags & GRE_CHECKSUM)
		return REASON_CHECKSUM;
	o->tunnel.kind = TUNNEL_EGRE;
	o->tunnel.key = bpf_ntohl(g->words[0]);
	o->length += 8;
	if (flags & GRE_SEQUENCE)
		o->length += 4;
	return CONTINUE;
}

static __always_inline enum reason read_vxlan(const struct vxlan *v, struct outer *o, __u32 segment)
{
	if (!(v->flags & bpf_htonl(VXLAN_KEY)) || (!segment && bpf_ntohs(v->udp.len) + o->length != o->total))
		return REASON_MALFORMED;
	o->tunnel.kind = TUNNEL_VXLAN;
	o->tunnel.key = bpf_ntohl(v->vni) >> 8;
	o->length += sizeof(*v);
	o->summed = v->udp.check && !segment; /* of segments the kernel has verified it, when it put them together */
	return CONTINUE;
}

/*
 * Reads the headers of a packet that is ours, in a frame of this length. A super-frame is longer than its header can
 * say.
 */
static __always_inline enum reason read_outer(const struct outer_header *h, __u32 length, __u32 segment,
					      struct outer *o)
{
	enum reason why;
	__u8 protocol;

	if (is_outer_ip4(h)) {
		if (h->ip4.frag_off & bpf_htons(IPV4_FRAGMENT))
			return REASON_FRAGMENT;
		if (!verify_ip4_checksum(&h->ip4))
			return REASON_MALFORMED;
		protocol = h->ip4.protocol;
		o->length = ETH_HLEN + sizeof(h->ip4);
		o->total = ETH_HLEN + bpf_ntohs(h->ip4.tot_len);
		o->ecn = h->ip4.tos & 3;
		if (with_met)
			o->ttl = h->ip4.ttl;
		o->v6 = false;
		map_address(o->tunnel.local, h->ip4.daddr);
		map_address(o->tunnel.peer, h->ip4.saddr);
	} else {
		if (h->ip6.version != 6)
			return REASON_MALFORMED;
		protocol = h->ip6.nexthdr;
		o->length = ETH_HLEN + sizeof(h->ip6);
		o->total = o->length + bpf_ntohs(h->ip6.payload_len);
		o->ecn = h->ip6.flow_lbl[0] >> 4 & 3;
		if (with_met)
			o->ttl = h->ip6.hop_limit;
		o->v6 = true;
		__builtin_memcpy(o->tunnel.local, &h->ip6.daddr, sizeof(o->tunnel.local));
		__builtin_memcpy(o->tunnel.peer, &h->ip6.saddr, sizeof(o->tunnel.peer));
	}
	if (segment)
		o->total = length;
	why = protocol == IPPROTO_GRE ? read_gre(&h->gre, o) : read_vxlan(&h->vxlan, o, segment);
	if (why != CONTINUE)
		return why;
	return o->total > length || o->total < o->length + ETH_HLEN ? REASON_MALFORMED : CONTINUE;
}

/* The port of the tunnel; 0: there is none. */
static __always_inline __u32 find_tunnel(const struct outer *o)
{
	const __u32 *port = bpf_map_lookup_elem(&tunnels, &o->tunnel);

	return port ? *port : 0;
}

static __always_inline bool counts_met(const struct encapsulation *e)
{
	__u8 ttl = is_outer_ip6(e) ? e->header[offsetof(struct ipv6hdr, hop_limit)] :
				     e->header[offsetof(struct iphdr, ttl)];

	return ttl == COUNTING_TTL;
}

/* How many packet programs has a frame met that comes out of the tunnel at the port? */
static __always_inline __u32 met_before(__u32 port, const struct outer *o)
{
	const struct encapsulation *e = bpf_map_lookup_elem(&encapsulations, &port);

	if (!e || e->kind == TUNNEL_NONE || !counts_met(e))
		return 0;
	return o->ttl > 1 ? COUNTING_TTL + 1 - o->ttl : COUNTING_TTL;
}

/* Writes into an outer header how many packet programs the frame has met. */
static __always_inline void write_met(void *outer, const struct encapsulation *e, __u32 met)
{
	__u8 ttl = met < COUNTING_TTL ? COUNTING_TTL - met : 1;

	if (!counts_met(e))
		return;
	if (is_outer_ip6(e))
		((struct ipv6hdr *)outer)->hop_limit = ttl;
	else
		((struct iphdr *)outer)->ttl = ttl;
}

enum ecn {
	NOT_ECT = 0,
	ECT_1 = 1,
	ECT_0 = 2,
	CE = 3,
	ECN_DROP = 4, /* not a codepoint: the packet is to be dropped */
};

/* What comes out of a tunnel (RFC 6040, figure 4). */
static __always_inline __u8 decapsulate_ecn(__u8 inner, __u8 outer)
{
	if (outer == CE)
		return inner == NOT_ECT ? ECN_DROP : CE;
	return outer == ECT_1 && inner == ECT_0 ? ECT_1 : inner;
}

/* The byte that has DSCP and ECN, of a packet that is no shorter than its header; else 0. */
static __always_inline __u8 traffic_class(const struct header *h, __u32 length)
{
	if (h->eth.h_proto == bpf_htons(ETH_P_IP) && length >= ETH_HLEN + sizeof(h->ip4))
		return h->ip4.tos;
	if (h->eth.h_proto == bpf_htons(ETH_P_IPV6) && length >= ETH_HLEN + sizeof(h->ip6))
		return h->ip6.priority << 4 | h->ip6.flow_lbl[0] >> 4;
	return 0;
}

/*
 * Writes into an outer header what the frame decides. inner is the length of the frame as it will be inside. ECN is
 * copied (RFC 6040, normal mode); not from behind a VLAN tag, where no decapsulator would put it back.
 */
static __always_inline void complete_outer(void *outer, const struct encapsulation *e, const struct frame *f,
					   __u32 inner)
{
	const struct header *h = &f->header;
	__u8 class = traffic_class(h, f->length) & ((e->dscp ? 0xfc : 0) | (f->tags.number ? 0 : 3));
	__u32 flow = is_outer_ip6(e) || e->kind == TUNNEL_VXLAN ? entropy(h, f->length) : 0, length = e->length + inner;
	struct udphdr *udp;

	if (is_outer_ip6(e)) {
		struct ipv6hdr *ip = outer;

		*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)class << 20 | (flow & 0xfffff)); /* RFC 6438 */
		length -= sizeof(*ip);
		ip->payload_len = bpf_htons(length);
		udp = (void *)(ip + 1);
	} else {
		struct iphdr *ip = outer;

		ip->tos = class;
		ip->tot_len = bpf_htons(length);
		ip->check = ~sum_ip4(ip);
		length -= sizeof(*ip);
		udp = (void *)(ip + 1);
	}
	if (e->kind != TUNNEL_VXLAN)
		return;
	udp->source = bpf_htons(FIRST_ENTROPY_PORT | (flow >> 18 & (65535 - FIRST_ENTROPY_PORT)));
	udp->len = bpf_htons(length);
}

/*
 * Writes the outer headers of the tunnel that begins at the port, without Ethernet's addresses, into the record.
 * inner is the length of the frame as it will be inside. Returns their length behind Ethernet's; 0: there is no
 * tunnel.
 */
__noinline int write_outer(struct frame *f, __u32 port, __u32 inner)
{
	const struct encapsulation *e;
	struct wrapping *w;

	if (!with_tunnels || !f)
		return 0;
	e = bpf_map_lookup_elem(&encapsulations, &port);
	if (!e)
		return 0;
	w = &f->outer;
	__builtin_memset(w, 0, offsetof(struct wrapping, bytes));
	w->eth.h_proto = is_outer_ip6(e) ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	/* The compiler copies what it does not know to be aligned byte by byte. */
	__builtin_memcpy(__builtin_assume_aligned(w->bytes, 8), __builtin_assume_aligned(e->header, 4), MAX_OUTER);
	if (with_met)
		write_met(w->bytes, e, f->met);
	complete_outer(w->bytes, e, f, inner);
	return e->length & OUTER_MASK;
}
