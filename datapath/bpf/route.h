/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The way of an outer packet to the other machine: what the machine's own routes and neighbours say.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "outer.h"

#ifndef AF_INET
#define AF_INET 2
#endif
#ifndef AF_INET6
#define AF_INET6 10
#endif

struct road {
	__u32 nic; /* ifindex in the machine's namespace */
	__u8 to[ETH_ALEN];
	__u8 from[ETH_ALEN];
};

/*
 * Asks the kernel, as for a packet that comes in by `by` and is to be forwarded: that is the uplink, for which forwarding is on. (A network card
 * need not forward.) Returns what bpf_fib_lookup() does. A super-frame is cut to what fits.
 */
static __always_inline long find_road(void *ctx, const void *network, const void *above, bool v6, __u32 by, __u32 segment, struct road *r)
{
	struct bpf_fib_lookup p = {};
	const struct ipv6hdr *ip6 = network;
	const struct iphdr *ip4 = network;
	const struct udphdr *udp = above;
	long ret;

	p.ifindex = by;
	if (v6) {
		p.family = AF_INET6;
		p.flowinfo = *(const __be32 *)ip6 & bpf_htonl(0x0fffffff);
		p.l4_protocol = ip6->nexthdr;
		p.tot_len = segment ? 0 : bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		__builtin_memcpy(p.ipv6_src, &ip6->saddr, sizeof(p.ipv6_src));
		__builtin_memcpy(p.ipv6_dst, &ip6->daddr, sizeof(p.ipv6_dst));
	} else {
		p.family = AF_INET;
		p.tos = ip4->tos & 0xfc;
		p.l4_protocol = ip4->protocol;
		p.tot_len = segment ? 0 : bpf_ntohs(ip4->tot_len);
		p.ipv4_src = ip4->saddr;
		p.ipv4_dst = ip4->daddr;
	}
	if (p.l4_protocol == IPPROTO_UDP) {
		p.sport = udp->source;
		p.dport = udp->dest;
	}
	ret = bpf_fib_lookup(ctx, &p, sizeof(p), 0);
	r->nic = p.ifindex;
	__builtin_memcpy(r->to, p.dmac, ETH_ALEN);
	__builtin_memcpy(r->from, p.smac, ETH_ALEN);
	return ret;
}

/* When a CPU last let the kernel see a frame. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} asked SEC(".maps");

/*
 * bpf_fib_lookup() takes a neighbour's address as it finds it, and the kernel does not learn that it is used. One frame a second goes
 * the kernel's way, so that it asks whether a stale neighbour is still there (RFC 4861, 7.3.3).
 */
static __always_inline bool asks_neighbour(void)
{
	const __u64 second = 1000000000;
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 zero = 0;
	__u64 *last = bpf_map_lookup_elem(&asked, &zero);

	if (!last || now - *last < second)
		return false;
	*last = now;
	return true;
}
