/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Early demultiplexing: where a core has more to do than it can, what a frame is decides before any work is done for
 * it.
 *
 *	card, its NAPI thread (real-time, host/wire/napi.go)
 *	  │ has a reservation, or is control traffic, as far as its meter lets it: line card, at once
 *	  │   └ where a packet program is to see it: as best effort
 *	  └ best effort: dropped, if its core has no time for it; else
 *	    └─> CPUMAP entry of the same core: a thread of the kernel below all that is real-time, whose program does
 *	        what the line card would have done
 *
 * What goes at once costs at most a walk, and how much that is, is measured. The time of packet programs is their
 * slice's (fastpath.h), so they are not called before what is reserved.
 *
 * Both run on one core with bottom halves off, one after the other: the record of a core is theirs without locks. What
 * best effort may take is bounded twice, so that the real-time thread hands over nothing in vain: by its share of the
 * core, a token bucket of processor time (meter.h), and by what waits for the thread below.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "frame.h"
#include "label_entry.h"
#include "meter.h"
#include "needs.h"
#include "outer.h"
#include "reasons.h"
#include "reserve.h"
#include "tunnel.h"

#define MAX_WAITING 512	 /* frames that wait for a thread below; its queue, datapath.belowQueue, is longer */
#define CONTROL_FRAME 1000000ull   /* ns that a frame of control traffic takes of its bucket: 1,000 a second, */
#define CONTROL_DEPTH 100000000ull /* and what a full bucket of it holds */
#define NOT_SAMPLED 1ull /* best_effort.began: it is counted, and not timed */
#define STUCK 2000000000 /* ns that frames wait without one that comes, after which they are taken for lost */

/* Of the machine: what user space decides. */
struct early {
	__u64 cost;  /* ns << METER_SCALE that a ns of processor time takes of the bucket: one by the share */
	__u64 depth; /* ns: what a full bucket holds */
	__u32 on;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct early);
} early_rules SEC(".maps");

/* Of a core. */
struct best_effort {
	__u64 full;	   /* when the bucket would be full again: ns, by the coarse clock */
	__u64 handed_over; /* frames, to all threads below, */
	__u64 done;	   /* and of them those that have come there */
	__u64 seen;	   /* when the last one of these came, or one began to wait: ns, by the coarse clock */
	__u64 working;	   /* a thread below is at a frame now */
	__u64 control;	   /* when the bucket of control traffic would be full again: ns, by the coarse clock */
	/* Of frames with a reservation: */
	__u64 sent;  /* that left by XDP, */
	__u64 time;  /* the processor time that they took: ns, */
	__u64 left;  /* and that were left to programs of tc */
	__u64 began; /* when the one at work began: ns, or NOT_SAMPLED; 0: it has none */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct best_effort);
} best_efforts SEC(".maps");

/* The threads below, by core: of line cards of ports, and of network cards. */
struct below {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1); /* the loader knows how many cores there may be */
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
};

struct below below_ports SEC(".maps"), below_nics SEC(".maps");

/*
 * Is the frame that begins here within a reservation? This is the one place that knows how it is told before anything
 * is looked up: the router where the LSP begins has measured it, and given its labels this class (reserve.h).
 */
static __always_inline bool has_reservation(const void *frame, const void *end)
{
	const struct ethhdr *eth = frame;
	const __be32 *entry = (const void *)(eth + 1);

	if ((const void *)(entry + 1) > end || eth->h_proto != bpf_htons(ETH_P_MPLS_UC))
		return false;
	return CLASS_OF(bpf_ntohl(*entry)) == RESERVED_CLASS;
}

/*
 * Does the frame that begins here look like control traffic, without which what has a reservation ends, too? That is
 * ARP, IPv6 neighbour discovery, IEEE 802.3 frames (IS-IS, spanning tree), and the precedences 6 and 7 (RFC 791, 3.1;
 * class selectors, RFC 2474, 4.2.2), also of a label (RFC 5462). Anybody can claim it, so has_room_for_control() has a
 * bound.
 */
static __always_inline bool looks_like_control(const void *frame, const void *end)
{
	const struct ethhdr *eth = frame;
	const struct iphdr *ip4 = (const void *)(eth + 1);
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);
	const __u8 *icmp = (const void *)(ip6 + 1);

	if ((const void *)(ip4 + 1) > end)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return ip4->tos >> 5 >= 6;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		if (ip6->priority >> 1 >= 6)
			return true;
		return (const void *)(icmp + 1) <= end && ip6->nexthdr == IPPROTO_ICMPV6 && *icmp >= 133 &&
		       *icmp <= 137;
	}
	if (eth->h_proto == bpf_htons(ETH_P_MPLS_UC))
		return CLASS_OF(bpf_ntohl(*(const __be32 *)(eth + 1))) >= 6;
	return eth->h_proto == bpf_htons(ETH_P_ARP) || bpf_ntohs(eth->h_proto) < ETH_P_802_3_MIN;
}

/* Where the frame inside begins, of a packet that looks like a tunnel's; NULL: it does not. */
static __always_inline const void *look_inside(const void *packet, const void *end)
{
	const struct ethhdr *eth = packet;
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);
	const struct iphdr *ip4 = (const void *)(eth + 1);
	const void *above = ip4 + 1;
	__u8 protocol;

	if ((const void *)(ip6 + 1) > end) /* no tunnel's packet is as short */
		return NULL;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (ip4->ihl != 5 || ip4->frag_off & bpf_htons(IPV4_OFFSET))
			return NULL;
		protocol = ip4->protocol;
	} else if (with_ipv6_underlay && eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		protocol = ip6->nexthdr;
		above = ip6 + 1;
	} else {
		return NULL;
	}
	if (protocol == IPPROTO_GRE) {
		const struct gre *gre = above;
		const void *inside = &gre->words[1]; /* behind the key, which each has (find_kind()) */

		if (inside > end || gre->protocol != bpf_htons(ETH_P_TEB) || !(gre->flags & bpf_htons(GRE_KEY)))
			return NULL;
		return gre->flags & bpf_htons(GRE_SEQUENCE) ? &gre->words[2] : inside;
	}
	if (protocol == IPPROTO_UDP) {
		const struct vxlan *vxlan = above;

		return (const void *)(vxlan + 1) <= end && vxlan->udp.dest == bpf_htons(VXLAN_PORT) ? vxlan + 1 : NULL;
	}
	return NULL;
}

static __always_inline struct best_effort *find_best_effort(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&best_efforts, &zero);
}

static __always_inline bool is_early(struct early **rules)
{
	__u32 zero = 0;

	*rules = bpf_map_lookup_elem(&early_rules, &zero);
	return *rules && (*rules)->on;
}

/*
 * Is there time on this core for a frame of best effort? What is taken for lost can still come: never is more done than
 * was handed over (begin_below()).
 */
static __always_inline bool may_wait(struct best_effort *b, const struct early *rules, __u64 now)
{
	if (b->full > now && b->full - now >= rules->depth)
		return false;
	if (b->handed_over == b->done)
		b->seen = now;
	if (b->handed_over - b->done < MAX_WAITING)
		return true;
	if (now < b->seen + STUCK)
		return false;
	b->done = b->handed_over;
	b->seen = now;
	return true;
}

/* Is this frame of control traffic within its bound on this core? If so, it is paid for; else it is best effort. */
static __always_inline bool has_room_for_control(__u64 now)
{
	struct best_effort *b = find_best_effort();

	if (!b || (b->control > now && b->control - now >= CONTROL_DEPTH))
		return false;
	b->control = (b->control > now ? b->control : now) + CONTROL_FRAME;
	return true;
}

enum turn_of {
	TURN_LAST,
	TURN_FIRST,    /* at once: control traffic, */
	TURN_RESERVED, /* and what has a reservation */
};

/* When does the frame that begins here go on? */
static __always_inline enum turn_of find_turn(struct frame *f, const void *frame, const void *end)
{
	if (has_reservation(frame, end))
		return TURN_RESERVED;
	return looks_like_control(frame, end) && has_room_for_control(coarse_clock(f)) ? TURN_FIRST : TURN_LAST;
}

/* A frame of best effort: dropped, or handed over to the thread below of this core. */
static __always_inline int defer(struct frame *f, const struct early *rules, void *below)
{
	struct best_effort *b = find_best_effort();

	if (!b)
		return XDP_PASS;
	if (!may_wait(b, rules, coarse_clock(f)))
		return XDP_DROP;
	b->handed_over++;
	return bpf_redirect_map(below, bpf_get_smp_processor_id(), XDP_PASS);
}

/* A frame has come to the thread below. Returns when, if it is measured; else 0. */
static __always_inline __u64 begin_below(struct best_effort *b, struct frame *f)
{
	if (b->done != b->handed_over)
		b->done++;
	b->seen = coarse_clock(f);
	b->working = true;
	return begin_sample();
}

/* Pays for what has been done since then, also for frames that are not measured. */
static __always_inline void end_below(struct best_effort *b, struct frame *f, __u64 begun)
{
	__u64 now = coarse_clock(f);
	struct early *rules;

	b->working = false;
	if (!begun || !is_early(&rules))
		return;
	b->full = (b->full > now ? b->full : now) + (end_sample(begun) * rules->cost >> METER_SCALE);
}

/* Work begins on a frame that goes on at once; on one with a reservation, it is measured. */
__noinline int begin_first(__u32 turn)
{
	struct best_effort *b = find_best_effort();

	if (with_early && b)
		b->began = turn == TURN_RESERVED ? begin_sample() ?: NOT_SAMPLED : 0;
	return 0;
}

/* It has left, or goes on elsewhere. */
__noinline int end_first(__u32 verdict)
{
	struct best_effort *b = find_best_effort();

	if (!with_early || !b || !b->began)
		return 0;
	if (verdict == XDP_PASS) {
		b->left++;
	} else {
		b->sent++;
		if (b->began != NOT_SAMPLED)
			b->time += end_sample(b->began);
	}
	b->began = 0;
	return 0;
}

/* Do packet programs wait for what goes first? Else they are called at once. */
__noinline int programs_wait(void)
{
	struct early *rules;

	return with_early && is_early(&rules);
}

/* Has nothing been done for the frame, because a packet program is to see it? */
static __always_inline bool waits_for_program(const struct frame *f, struct early **rules, int verdict)
{
	return with_early && verdict == XDP_PASS && f->why == TO_PROGRAM && is_early(rules);
}

/* Is this the thread below? */
static __always_inline bool is_below(void)
{
	const struct best_effort *b = find_best_effort();

	return b && b->working;
}
