/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Classes: which queue of a link's scheduler a frame waits in. Rules belong to the port by which a frame enters the
 * link; the first rule that matches names a class of the qdisc (HTB) behind it, by skb->priority. A frame that no rule
 * matches has priority 0, and takes the qdisc's default class.
 *
 * Where a packet program chooses the queue, there are no rules: the queue's number gives the class. What goes by an LSP,
 * within its reservation (reserve.h), has a class of its own where the link has one, whatever the rules are.
 *
 * Ports without rules have no entry here, and their frames are not looked up (struct port, classified). Read are the
 * network header, and the ports of protocols that begin with two of them. What is behind a VLAN tag in the frame, an
 * IPv6 extension header, and the ports of any fragment, is not read: rules that ask for it do not match.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "ports.h"

#define MAX_RULES 16 /* slice.MaxRules */

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
	__u32 class; /* of the qdisc: major and minor number */
	__u8 flags;  /* enum rule_flags */
	__u8 dscp;
	__u8 protocol;
	__u8 pad;
	struct port_range sport, dport;
};

struct classifier {
	__u64 number; /* of rules */
	struct rule rules[MAX_RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct classifier);
} classifiers SEC(".maps");

/* What rules ask about a packet. */
struct packet_key {
	struct bits128 source, destination;
	__u16 sport, dport;
	__u8 dscp, protocol;
	__u8 has_ports;
};

static __always_inline bool in_range(const struct port_range *r, __u16 port)
{
	return port >= r->first && port <= r->last;
}

static __always_inline bool has_prefix(const struct bits128 *a, const struct bits128 *want, const struct bits128 *mask)
{
	return (a->high & mask->high) == want->high && (a->low & mask->low) == want->low;
}

/* Global, so that the verifier looks at it once and not once for each rule. */
__noinline int matches(const struct rule *r, const struct packet_key *k)
{
	if (!r || !k)
		return false;
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

/* False for what is no IP packet. */
static __always_inline bool read_key(struct __sk_buff *skb, struct packet_key *k)
{
	__u32 above = 0;
	__be16 protocol, ports[2];

	/* skb->protocol is that of the frame as it came: a label that was put on, or taken off, does not change it. */
	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)))
		return false;
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)))
			return false;
		k->source = mapped(h.saddr);
		k->destination = mapped(h.daddr);
		k->dscp = h.tos >> 2;
		k->protocol = h.protocol;
		if (!(h.frag_off & bpf_htons(0x3fff))) /* neither an offset nor more fragments */
			above = ETH_HLEN + h.ihl * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)))
			return false;
		k->source = address_of(&h.saddr);
		k->destination = address_of(&h.daddr);
		k->dscp = (h.priority << 4 | h.flow_lbl[0] >> 4) >> 2;
		k->protocol = h.nexthdr;
		above = ETH_HLEN + sizeof(h);
	} else {
		return false;
	}
	k->has_ports = above && has_ports(k->protocol) && !bpf_skb_load_bytes(skb, above, ports, sizeof(ports));
	if (k->has_ports) {
		k->sport = bpf_ntohs(ports[0]);
		k->dport = bpf_ntohs(ports[1]);
	}
	return true;
}

/* Verified once: it is the work of ports that have rules, and of no others. */
__noinline __u32 class_of(struct __sk_buff *skb, __u32 port)
{
	const struct classifier *c = bpf_map_lookup_elem(&classifiers, &port);
	struct packet_key k = {};

	if (!c || !read_key(skb, &k))
		return 0;
	for (__u32 i = 0; i < MAX_RULES && i < c->number; i++) {
		if (matches(&c->rules[i], &k))
			return c->rules[i].class;
	}
	return 0;
}

#define FIRST_QUEUE (1 << 16 | 0x10)   /* datapath.FirstQueue */
#define RESERVED_QUEUE (1 << 16 | 2) /* datapath.ReservedQueue */

/*
 * A frame that is about to wait at a link's queue gets its class: that of reservations; that of the queue which a packet
 * program chose, where the link has such queues; or by the rules. Queue 0 is that of all frames for which none was chosen.
 */
static __always_inline void classify(struct __sk_buff *skb, __u32 from, __u32 queue, bool reserved)
{
	const struct port *p = find_port(from);

	if (!p)
		return;
	if (reserved && p->reserves)
		skb->priority = RESERVED_QUEUE;
	else if (p->classified)
		skb->priority = class_of(skb, from);
	else if (p->queues)
		skb->priority = FIRST_QUEUE + (queue < p->queues ? queue : 0);
}
