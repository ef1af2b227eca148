/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rules about packets: what users write as `match`. Links choose classes by them (class.h), and routers LSPs
 * (label_rule.h). All that a rule names must hold.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "header.h"

enum rule_flags {
	RULE_DSCP = 1,
	RULE_PROTOCOL = 2,
	RULE_PORTS = 4, /* of source and destination, each in its range */
	RULE_PORT = 8,	/* of source or destination, in the range of the source's */
	RULE_SOURCE = 16,
	RULE_DESTINATION = 32,
};

/* 128 bits; IPv4 addresses are ::ffff:a.b.c.d. */
struct bits128 {
	__u64 high, low;
};

struct port_range {
	__u16 first, last; /* host order, both included */
};

struct rule {
	struct bits128 source, source_mask, destination, destination_mask;
	__u32 class; /* what it chooses: of the qdisc, major and minor number; of a router, an FTN */
	__u8 flags;  /* enum rule_flags */
	__u8 dscp;
	__u8 protocol;
	__u8 pad;
	struct port_range sport, dport;
};

/* What rules ask about a packet. */
struct packet_key {
	struct bits128 source, destination;
	__u16 sport, dport;
	__u8 dscp, protocol;
	__u8 has_ports;
	__u8 pad;
};

static __always_inline bool in_range(const struct port_range *r, __u16 port)
{
	return port >= r->first && port <= r->last;
}

static __always_inline bool has_prefix(const struct bits128 *a, const struct bits128 *want, const struct bits128 *mask)
{
	return (a->high & mask->high) == want->high && (a->low & mask->low) == want->low;
}

static __always_inline bool does_match(const struct rule *r, const struct packet_key *k)
{
	if (r->flags & RULE_DSCP && r->dscp != k->dscp)
		return false;
	if (r->flags & RULE_PROTOCOL && r->protocol != k->protocol)
		return false;
	if (r->flags & RULE_SOURCE && !has_prefix(&k->source, &r->source, &r->source_mask))
		return false;
	if (r->flags & RULE_DESTINATION && !has_prefix(&k->destination, &r->destination, &r->destination_mask))
		return false;
	if (r->flags & (RULE_PORTS | RULE_PORT) && !k->has_ports)
		return false;
	if (r->flags & RULE_PORTS && !(in_range(&r->sport, k->sport) && in_range(&r->dport, k->dport)))
		return false;
	return !(r->flags & RULE_PORT) || in_range(&r->sport, k->sport) || in_range(&r->sport, k->dport);
}

/* Global, so that the verifier looks at it once and not once for each rule. */
__noinline int matches(const struct rule *r, const struct packet_key *k)
{
	return r && k && does_match(r, k);
}

static __always_inline struct bits128 mapped(__be32 ip4)
{
	struct bits128 a = {.low = 0xffffULL << 32 | bpf_ntohl(ip4)};

	return a;
}

static __always_inline struct bits128 address_of(const struct in6_addr *ip6)
{
	const __be32 *words = ip6->in6_u.u6_addr32;
	struct bits128 a = {
		.high = (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]),
		.low = (__u64)bpf_ntohl(words[2]) << 32 | bpf_ntohl(words[3]),
	};

	return a;
}

static __always_inline void set_ports(struct packet_key *k, const __be16 *ports)
{
	k->sport = bpf_ntohs(ports[0]);
	k->dport = bpf_ntohs(ports[1]);
	k->has_ports = true;
}

static __always_inline void read_ip4_key(const struct iphdr *h, struct packet_key *k)
{
	k->source = mapped(h->saddr);
	k->destination = mapped(h->daddr);
	k->dscp = h->tos >> 2;
	k->protocol = h->protocol;
}

static __always_inline void read_ip6_key(const struct ipv6hdr *h, struct packet_key *k)
{
	k->source = address_of(&h->saddr);
	k->destination = address_of(&h->daddr);
	k->dscp = (h->priority << 4 | h->flow_lbl[0] >> 4) >> 2;
	k->protocol = h->nexthdr;
}
