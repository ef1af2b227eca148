/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * UDP ports of a node with a packet program (udp.h): which of its interfaces they are, and PERGOLA_UDP, by which the
 * program sends to an address and a port of its choice.
 *
 * The platform writes the outer header: the source is the node's own port, which is reserved for it, so no program can
 * speak for somebody else. Where it may send, and how much, the map says. What the machine itself has, or a network's
 * broadcast, the kernel's routes refuse (underlay_egress in underlay.c).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "datagram.h"
#include "meter.h"
#include "node_maps.h"
#include "uplink.h"

#define MAX_UDP_PEERS 16   /* node.MaxUDPPeers */
#define TUNNELS_PORT 4789  /* VXLAN's: other machines would take it for a tunnel of this one */
#define SLIVERS_NET 0xc613 /* 198.19.0.0/16, pool of package outside: other slices' nodes, past the rules between them */
#define UDP_TTL 64
#define MAX_DATAGRAM 65535 /* bytes of an IP packet */

/* The loader writes it, as it does with those of needs.h: the node has UDP ports. */
const volatile __u8 has_udp = 1;

struct udp_peers {
	__be32 address;
	__be32 mask;
};

struct udp_port {
	__be32 local;
	__be16 port;  /* 0: the interface is no UDP port */
	__u16 number; /* of prefixes that it may send to */
	struct udp_peers peers[MAX_UDP_PEERS];
	struct meter meter; /* of what it sends */
};

/* By interface. The number of 0 is the first of them: that of frames without one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PERGOLA_INTERFACES + 1);
	__type(key, __u32);
	__type(value, struct udp_port);
} node_udp_ports SEC(".maps");

static __always_inline struct udp_port *find_udp_port(__u32 interface)
{
	struct udp_port *u = bpf_map_lookup_elem(&node_udp_ports, &interface);

	if (u && !interface) {
		interface = u->number;
		u = bpf_map_lookup_elem(&node_udp_ports, &interface);
	}
	return u && u->port ? u : NULL;
}

/*
 * Where did a frame come from: in a UDP packet? The record says so for this call alone. False: it came by an interface
 * that is none of the node's UDP ports, and is to be dropped.
 */
static __always_inline bool read_sender(struct frame *f, struct program_input *in)
{
	__u16 port = bpf_ntohs(f->outer_port);

	if (!port)
		return true;
	f->outer_port = 0;
	if (!has_udp || !find_udp_port(f->interface))
		return false;
	in->outer_port = port;
	in->outer_address[10] = in->outer_address[11] = 0xff;
	__builtin_memcpy(in->outer_address + 12, &f->outer_address, sizeof(f->outer_address));
	return true;
}

/* Is it an address that the node may send to? */
static __always_inline bool is_peer(const struct udp_port *u, __be32 to)
{
	__u32 first = bpf_ntohl(to) >> 24;

	if (first == 0 || first == 127 || first >= 224 || to == u->local || bpf_ntohl(to) >> 16 == SLIVERS_NET)
		return false;
	for (int i = 0; i < MAX_UDP_PEERS; i++) {
		if (i >= u->number)
			return false;
		if (!((to ^ u->peers[i].address) & u->peers[i].mask))
			return true;
	}
	return false;
}

static __always_inline bool is_mapped(const __u8 *address)
{
	const __u32 *word = (const void *)address;

	return !word[0] && !word[1] && word[2] == bpf_htonl(0xffff);
}

/*
 * What is put before a frame of this length in the place of its Ethernet header, if the node may send it. One that
 * comes to no interface of the program's choice leaves by the first of its UDP ports.
 */
static __always_inline enum program_fault make_datagram(struct datagram *d, const struct program_outcome *o,
							__u32 length)
{
	struct udp_port *u = has_udp ? find_udp_port(o->output) : NULL;
	__u32 total = length - ETH_HLEN + UDP_HEADERS;
	__be32 to;

	if (!u)
		return PROGRAM_NO_UDP;
	__builtin_memcpy(&to, o->address + 12, sizeof(to));
	if (!is_mapped(o->address) || !is_peer(u, to) || !o->port || o->port == TUNNELS_PORT)
		return PROGRAM_NO_PEER;
	if (total > MAX_DATAGRAM)
		return PROGRAM_NO_ROOM;
	if (!conforms(&u->meter, 1, ETH_HLEN + total, bpf_ktime_get_ns()))
		return PROGRAM_UDP_RATE;
	__builtin_memset(d, 0, sizeof(*d));
	d->eth.h_proto = bpf_htons(ETH_P_IP);
	d->ip.version = 4;
	d->ip.ihl = 5;
	d->ip.tot_len = bpf_htons(total);
	d->ip.frag_off = bpf_htons(0x4000); /* Don't Fragment */
	d->ip.ttl = UDP_TTL;
	d->ip.protocol = IPPROTO_UDP;
	d->ip.saddr = u->local;
	d->ip.daddr = to;
	d->ip.check = ~sum_ip4(&d->ip);
	d->udp.source = u->port;
	d->udp.dest = bpf_htons(o->port);
	d->udp.len = bpf_htons(total - sizeof(d->ip));
	return PROGRAM_OK; /* without a UDP checksum, which IPv4 allows (RFC 768) */
}

/* Out of the substrate: the uplink's other end has the routes. */
static __always_inline int send_udp(struct __sk_buff *skb, const struct settings *n, struct node_traffic *c,
				    const struct program_outcome *o)
{
	const struct uplink *up = find_uplink();
	enum program_fault why;
	struct datagram d;

	if (!up || !up->inside)
		return drop_frame(c, PROGRAM_NO_UDP);
	why = make_datagram(&d, o, skb->len);
	if (why != PROGRAM_OK)
		return drop_frame(c, why);
	if (bpf_skb_change_head(skb, UDP_HEADERS, 0) || bpf_skb_store_bytes(skb, 0, &d.eth, DATAGRAM_HEAD, 0))
		return drop_frame(c, PROGRAM_NO_ROOM);
	count_verdict(c, PERGOLA_UDP);
	skb->priority = card_class(n->slice);
	return bpf_redirect(up->inside, 0);
}
