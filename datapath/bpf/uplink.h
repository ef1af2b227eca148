/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The uplink, by which packets leave the substrate for other machines, and what becomes of them.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "needs.h"

/* The veth pair between the substrate and the machine's own namespace. Its ends have numbers of two namespaces. */
struct uplink {
	__u32 inside;  /* ifindex of the substrate's end */
	__u32 outside; /* of the machine's */
	__u32 bound;   /* packets of tunnels leave by interfaces in the map exits alone (outer_route.h) */
	__u32 queued;  /* they wait at the inner end: waits_at_card() */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

/* What happened to outer packets, one copy per CPU. Frames are counted at their ports, too. */
struct underlay {
	struct traffic received; /* and decapsulated */
	struct traffic sent;	 /* encapsulated */
	__u64 by_card;		 /* of the packets received: by the line card alone (tunnelcard.c) */
	__u64 dropped[REASONS];	 /* where no port is known yet, or any more */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct underlay);
} underlays SEC(".maps");

static __always_inline const struct uplink *find_uplink(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&uplinks, &zero);
}

/*
 * Has a slice reserved of the machine's card? Then all packets that leave pass the qdisc of the uplink's inner end, an
 * HTB that has a class for each such slice (host/wiring/card.go). No program hands them past the device, and XDP leaves
 * them to tc.
 */
static __always_inline bool waits_at_card(const struct uplink *u) { return with_card && u->queued; }

#define FIRST_CARD_CLASS (1 << 16 | 0x10) /* datapath.FirstCardClass: of what is no slice's; the slice's ID is added */

/* For skb->priority: HTB takes it for the class; where there is no such class, it takes the default class. */
static __always_inline __u32 card_class(__u32 slice) { return FIRST_CARD_CLASS + slice; }

/* A packet came, and a frame was in it. */
static __always_inline void count_received(__u32 bytes, bool by_card)
{
	__u32 zero = 0;
	struct underlay *u = bpf_map_lookup_elem(&underlays, &zero);

	if (!u)
		return;
	u->received.frames++;
	u->received.bytes += bytes;
	u->by_card += by_card;
}

static __always_inline void count_sent(__u32 bytes)
{
	__u32 zero = 0;
	struct underlay *u = bpf_map_lookup_elem(&underlays, &zero);

	if (!u)
		return;
	u->sent.frames++;
	u->sent.bytes += bytes;
}

static __always_inline void count_packet_drop(enum reason why)
{
	__u32 zero = 0;
	struct underlay *u = bpf_map_lookup_elem(&underlays, &zero);

	if (u && why < REASONS)
		u->dropped[why]++;
}
