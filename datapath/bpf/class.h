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

#include "ports.h"
#include "rule.h"

#define MAX_RULES 16 /* slice.MaxRules */

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
		read_ip4_key(&h, k);
		if (!(h.frag_off & bpf_htons(0x3fff))) /* neither an offset nor more fragments */
			above = ETH_HLEN + h.ihl * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)))
			return false;
		read_ip6_key(&h, k);
		above = ETH_HLEN + sizeof(h);
	} else {
		return false;
	}
	if (above && has_ports(k->protocol) && !bpf_skb_load_bytes(skb, above, ports, sizeof(ports)))
		set_ports(k, ports);
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
