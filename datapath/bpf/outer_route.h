/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Outer routes: where an outer packet leaves for the other machine, by the machine's own routes and neighbours.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "outer.h"

#ifndef AF_INET
#define AF_INET 2
#endif
#ifndef AF_INET6
#define AF_INET6 10
#endif

struct outer_route {
	__u32 nic; /* ifindex in the machine's namespace */
	__u32 mtu; /* of the path, as far as the machine knows it */
	__u8 to[ETH_ALEN];
	__u8 from[ETH_ALEN];
};

/*
 * Asks the kernel, as for a packet that comes in by `by` and is to be forwarded: that is the uplink, for which
 * forwarding is on. (A network card need not forward.) Returns what bpf_fib_lookup() does. A super-frame is cut to
 * what fits: the lookup is for a packet of one byte, because without a length the kernel does not return the path's
 * MTU.
 */
static __always_inline long find_outer_route(void *ctx, const void *network, const void *above, bool v6, __u32 by,
					     __u32 segment, struct outer_route *r)
{
	struct bpf_fib_lookup p = {};
	const struct ipv6hdr *ip6 = network;
	const struct iphdr *ip4 = network;
	const struct udphdr *udp = above;
	long ret;

	p.ifindex = by;
	if (with_ipv6_underlay && v6) {
		p.family = AF_INET6;
		p.flowinfo = *(const __be32 *)ip6 & bpf_htonl(0x0fffffff);
		p.l4_protocol = ip6->nexthdr;
		p.tot_len = segment ? 1 : bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		__builtin_memcpy(p.ipv6_src, &ip6->saddr, sizeof(p.ipv6_src));
		__builtin_memcpy(p.ipv6_dst, &ip6->daddr, sizeof(p.ipv6_dst));
	} else {
		p.family = AF_INET;
		p.tos = ip4->tos & 0xfc;
		p.l4_protocol = ip4->protocol;
		p.tot_len = segment ? 1 : bpf_ntohs(ip4->tot_len);
		p.ipv4_src = ip4->saddr;
		p.ipv4_dst = ip4->daddr;
	}
	if (p.l4_protocol == IPPROTO_UDP) {
		p.sport = udp->source;
		p.dport = udp->dest;
	}
	ret = bpf_fib_lookup(ctx, &p, sizeof(p), 0);
	r->nic = p.ifindex;
	r->mtu = p.mtu_result; /* in the place of tot_len, where that was asked for */
	__builtin_memcpy(r->to, p.dmac, ETH_ALEN);
	__builtin_memcpy(r->from, p.smac, ETH_ALEN);
	return ret;
}

/*
 * The interfaces of the underlay, by ifindex in the machine's namespace. A device that is gone is gone from here,
 * too: its number may become another one's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 128);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} exits SEC(".maps");

/*
 * May packets of tunnels leave by the interface? While a VPN is down, the machine's routes may lead elsewhere, by the
 * default route, where others could read what the VPN would have encrypted.
 */
static __always_inline bool is_exit(const struct uplink *u, __u32 nic)
{
	return !u->bound || bpf_map_lookup_elem(&exits, &nic);
}

/* When the kernel last saw a packet to a machine: one clock for each. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct address);
	__type(value, __u64);
} asked SEC(".maps");

static __always_inline void find_peer(const void *network, bool v6, struct address *peer)
{
	const struct ipv6hdr *ip6 = network;
	const struct iphdr *ip4 = network;

	if (with_ipv6_underlay && v6)
		__builtin_memcpy(peer->bytes, &ip6->daddr, sizeof(peer->bytes));
	else
		map_address(peer->bytes, ip4->daddr);
}

/*
 * bpf_fib_lookup() takes a neighbour's address as it finds it, and the kernel does not learn that it is used. One
 * packet a second to each machine is sent by the kernel, so that it asks whether a stale neighbour is still there
 * (RFC 4861, 7.3.3). underlay_egress sends it, and notes the time; the line card only leaves it to that.
 */
static __always_inline bool is_kernels_turn(const struct address *peer, __u64 now)
{
	const __u64 second = 1000000000;
	const __u64 *last = bpf_map_lookup_elem(&asked, peer);

	return !last || now >= *last + second;
}

#define MAX_ROUTES 4096
#define ROUTE_LIFETIME 10000000 /* ns */

/*
 * Route caches, one copy per CPU: a lookup in the kernel costs as much as all else that the line card does. An entry
 * is used for so short a time that a change of routes or neighbours is followed sooner than a notification could
 * come, and for packets that no route, rule or multipath hash could tell apart.
 *
 * The line card's is by tunnel.
 */
struct card_route {
	struct outer_route route;
	__u32 port;  /* of the tunnel; 0: the entry is empty */
	__u64 class; /* of its packets: route_class() */
	__u64 until; /* by bpf_ktime_get_coarse_ns() */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROUTES);
	__type(key, __u32);
	__type(value, struct card_route);
} card_routes SEC(".maps");

/* What packets of one tunnel differ in that a route may depend on: DSCP, flow label, UDP source port. */
static __always_inline __u64 route_class(const struct encapsulation *e, const void *network)
{
	const struct ipv6hdr *ip6 = network;
	const struct iphdr *ip4 = network;
	const struct udphdr *udp = is_outer_ip6(e) ? (const void *)(ip6 + 1) : (const void *)(ip4 + 1);
	__u64 class = is_outer_ip6(e) ? *(const __be32 *)ip6 & bpf_htonl(0x0fffffff) : ip4->tos & 0xfc;

	return e->kind == TUNNEL_VXLAN ? class << 16 | udp->source : class;
}

/*
 * The outer route of a packet into the tunnel that begins at the port, from the cache or from the kernel. NULL: there
 * is none, or the kernel is to see the packet; programs of tc find out.
 */
static __always_inline const struct outer_route *find_card_route(void *ctx, const void *network,
								 const struct encapsulation *e, __u32 port,
								 const struct uplink *u)
{
	const void *above = network + (is_outer_ip6(e) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	__u64 now = bpf_ktime_get_coarse_ns(), class = route_class(e, network);
	__u32 slot = (port + (__u32)mix(class)) % MAX_ROUTES;
	struct card_route *c = bpf_map_lookup_elem(&card_routes, &slot);
	struct address peer = {};
	long found;

	if (!c)
		return NULL;
	if (c->port == port && c->class == class && now < c->until)
		return &c->route;
	c->port = 0;
	find_peer(network, e->v6, &peer);
	if (is_kernels_turn(&peer, now))
		return NULL;
	found = find_outer_route(ctx, network, above, e->v6, u->outside, 0, &c->route);
	if (found != BPF_FIB_LKUP_RET_SUCCESS || !is_exit(u, c->route.nic))
		return NULL;
	c->port = port;
	c->class = class;
	c->until = now + ROUTE_LIFETIME;
	return &c->route;
}

/* The cache of programs of tc, which have the packet and do not know whose tunnel it is, is by addresses. */
struct route_key {
	struct address from, to;
	__u64 class; /* protocol, UDP ports, DSCP or flow label */
};

struct egress_route {
	struct outer_route route;
	struct route_key key;
	__u64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROUTES);
	__type(key, __u32);
	__type(value, struct egress_route);
} egress_routes SEC(".maps");

static __always_inline void make_route_key(const struct outer_header *h, struct route_key *k)
{
	__u32 flow;
	__u8 protocol;

	if (is_outer_ip4(h)) {
		flow = h->ip4.tos & 0xfc;
		protocol = h->ip4.protocol;
		map_address(k->from.bytes, h->ip4.saddr);
		map_address(k->to.bytes, h->ip4.daddr);
	} else {
		flow = *(const __be32 *)&h->ip6 & bpf_htonl(0x0fffffff);
		protocol = h->ip6.nexthdr;
		__builtin_memcpy(k->from.bytes, &h->ip6.saddr, sizeof(k->from.bytes));
		__builtin_memcpy(k->to.bytes, &h->ip6.daddr, sizeof(k->to.bytes));
	}
	k->class = (__u64)flow << 32 | protocol;
	if (protocol == IPPROTO_UDP)
		k->class |= (__u64)h->vxlan.udp.source << 8;
	if (with_udp && is_outer_ip4(h) && protocol == IPPROTO_UDP)
		k->class |= (__u64)h->vxlan.udp.dest << 40; /* above DSCP; of tunnels it is always the same */
}

/* The place of the key's entry, which may be another one's. */
static __always_inline struct egress_route *find_egress_route(const struct route_key *k)
{
	const __u64 *word = (const void *)k;
	__u32 slot = (__u32)mix(word[0] ^ word[1] ^ word[2] << 1 ^ word[3] << 1 ^ k->class) % MAX_ROUTES;

	return bpf_map_lookup_elem(&egress_routes, &slot);
}

static __always_inline bool is_fresh(const struct egress_route *r, const struct route_key *k, __u64 now)
{
	const __u64 *a = (const void *)&r->key, *b = (const void *)k;

	return now < r->until &&
	       !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}
