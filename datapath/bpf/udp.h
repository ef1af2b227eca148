/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * UDP ports of this machine that lead to packet programs: each is an interface of a node that is no link. What comes
 * to such a port goes to the program as a frame, whose Ethernet header is all zeros and whose rest is the payload. The
 * way back is PERGOLA_UDP (node_udp.h). docs/decisions/020-udp-ports-of-packet-programs.md has the reasons.
 *
 * IPv4. Fragments, and packets with options, are the kernel's, as is what comes to another address of the machine.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "datagram.h"
#include "frame.h"
#include "needs.h"

/* A port of an address of this machine. */
struct udp_name {
	__be32 local;
	__be16 port;
	__u16 pad;
};

/* Whose interface it is. The program looks whether it is one of its own (node_udp.h). */
struct udp_owner {
	__u32 node; /* number of its program (node.h) */
	__u32 interface;
};

/* User space (package node) writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct udp_name);
	__type(value, struct udp_owner);
} udp_owners SEC(".maps");

static __always_inline const struct udp_owner *find_udp_owner(const struct datagram *d)
{
	struct udp_name name = {};

	if (d->eth.h_proto != bpf_htons(ETH_P_IP) || d->ip.version != 4 || d->ip.ihl != 5 ||
	    d->ip.protocol != IPPROTO_UDP || d->ip.frag_off & bpf_htons(IPV4_FRAGMENT))
		return NULL;
	name.local = d->ip.daddr;
	name.port = d->udp.dest;
	return bpf_map_lookup_elem(&udp_owners, &name);
}

/* Notes in the record where it comes from, for the program that is called next. */
static __always_inline void note_sender(struct frame *f, const struct udp_owner *o, const struct datagram *d)
{
	f->router = o->node;
	f->interface = o->interface;
	f->outer_address = d->ip.saddr;
	f->outer_port = d->udp.source;
	f->from = f->at = 0;
}
