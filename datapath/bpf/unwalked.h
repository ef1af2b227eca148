/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames with labels that are dropped, and of which a process of ours is told: the agent, which answers in the place of
 * a kernel (host/agent/unwalked). docs/decisions/031-what-labels-cannot-walk.md has the reasons.
 *
 *	dropped (mpls.h) -> token bucket of the router -> ring buffer -> datapath.Unwalked
 *
 * Only programs of tc tell: those of XDP leave such frames to them. User space is given the frame as it came to the
 * program, and what has become of its labels on the way to the router.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "fib.h"
#include "frame.h"
#include "meter.h"
#include "label_stack.h"
#include "needs.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"

/* Ethernet, twelve labels, and the 128 bytes of a packet that ICMP quotes at least (RFC 4884, 3). */
#define UNWALKED_BYTES 192

struct unwalked {
	__u64 time;  /* ns, by the coarse clock */
	__u32 space; /* of the router's labels */
	__u32 at;    /* the router's port by which the frame came, */
	__u32 from;  /* and the port by which it left the node before */
	__u32 why;   /* enum reason */
	__u32 room;  /* REASON_TOO_BIG: of what length it would fit, with the labels that it came to the router with */
	__u32 captured;
	struct label_edit edit; /* by which it came to the router */
	__u8 bytes[UNWALKED_BYTES]; /* the first ones of the frame, as it came to the program */
};

/* Puts the struct into the object's BTF; nothing uses it. */
struct unwalked *unwalked_record __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18); /* 963 records */
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} unwalked_frames SEC(".maps");

/*
 * Each router's token bucket: when it would be full again, in ns by the coarse clock. By router id. So much is told of
 * a router in a second, and at once; the kernel bounds its own answers by net.ipv4.icmp_ratelimit.
 */
#define UNWALKED_RATE 20  /* datapath.unwalkedRate */
#define UNWALKED_BURST 40 /* datapath.unwalkedBurst */
#define SECOND 1000000000ull

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ROUTERS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} unwalked_full SEC(".maps");

static __always_inline bool is_told(enum reason why)
{
	return why == REASON_LABEL_TTL || why == REASON_TOO_BIG || why == REASON_ROUTER_ALERT;
}

static __always_inline bool may_tell(struct frame *f, __u32 router)
{
	__u64 *full = bpf_map_lookup_elem(&unwalked_full, &router);

	return full && take_tokens(full, SECOND / UNWALKED_RATE * UNWALKED_BURST, SECOND / UNWALKED_RATE,
				   coarse_clock(f));
}

/* Returns false where the agent reads too slowly. */
static __always_inline bool tell(struct __sk_buff *skb, struct frame *f, enum reason why, __u32 router)
{
	const struct router *r = bpf_map_lookup_elem(&routers, &router);
	const struct label_stack *s = find_label_stack();
	__u64 n = skb->len;
	struct unwalked *u;

	if (!r || !s)
		return false;
	u = bpf_ringbuf_reserve(&unwalked_frames, sizeof(*u), 0);
	if (!u)
		return false;
	u->time = f->now;
	u->space = r->space;
	u->at = f->at;
	u->from = f->from;
	u->why = why;
	u->room = s->room;
	u->edit = s->came;
	if (n > UNWALKED_BYTES)
		n = UNWALKED_BYTES;
	asm volatile("" : "+r"(n)); /* as header_length() */
	u->captured = n;
	if (n < ETH_HLEN || n > UNWALKED_BYTES || bpf_skb_load_bytes(skb, 0, u->bytes, n)) {
		bpf_ringbuf_discard(u, 0);
		return false;
	}
	bpf_ringbuf_submit(u, 0);
	return true;
}

/*
 * The frame is dropped, perhaps by a router because of its labels. No global function: hosts without labels have
 * nothing of it.
 */
static __noinline int tell_agent(struct __sk_buff *skb, struct frame *f, enum reason why)
{
	__u32 router = f->router;

	if (f->why == DROPPED && is_told(why))
		count_punted(router, may_tell(f, router) && tell(skb, f, why, router) ? PUNT_AGENT : PUNT_WITHHELD);
	return 0;
}
