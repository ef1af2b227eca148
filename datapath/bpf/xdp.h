/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs of XDP do with a frame, which begins at f->begin in what came in: behind outer headers
 * (tunnelcard.c), or at 0.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "handover.h"
#include "header.h"
#include "link.h"
#include "node.h"
#include "walk.h"

/*
 * Devices that take frames from XDP programs, by port: frames to the port; or, where a tunnel begins, out of it, to
 * come in there. User space decides; a device that is gone is gone from here, too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

#define MAX_BEGIN 127 /* behind the longest outer headers */

/* The way out to the port's device, if that takes frames from XDP programs; else XDP_PASS. */
static __always_inline int to_device(__u32 port) { return bpf_redirect_map(&devices, port, XDP_PASS); }

static __always_inline bool read_header(struct xdp_md *ctx, struct frame *f)
{
	__u64 n = header_length(f->length);
	__u32 at = f->begin & MAX_BEGIN;

	if (copy_header(&f->header, f->length, (void *)(long)ctx->data + at, (void *)(long)ctx->data_end))
		return true;
	return n && !bpf_xdp_load_bytes(ctx, at, &f->header.eth, n);
}

/* Frames that get labels or lose them are left to programs of tc; those that change them are not. */
static __always_inline bool keeps_length(const struct frame *f) { return !with_mpls || f->edit.puts == f->edit.takes; }

/* Past all nodes on the way? */
static __always_inline bool walk_through(struct xdp_md *ctx, struct frame *f)
{
	__u32 length = f->length, longest = f->longest;
	enum reason why;

	if (!arrived(f))
		return true;
	if (!read_header(ctx, f))
		return false;
	why = walk(f);
	if (with_mpls) { /* what is not walked is as it came */
		f->length = length;
		f->longest = longest;
	}
	return why == CONTINUE && f->why == WALK_ON && f->mode == MODE_PEER && keeps_length(f);
}

/* Writes the outer headers to where the packet begins: n bytes in all. */
static __always_inline bool paste_outer(struct xdp_md *ctx, const struct wrapping *w, __u32 n)
{
	void *data = (void *)(long)ctx->data;
	const __u32 least = sizeof(struct iphdr) + 8;
	__u32 *to = data + sizeof(w->eth);
	const __u32 *from = (const void *)w->bytes;

	if (data + sizeof(w->eth) + MAX_OUTER > (void *)(long)ctx->data_end)
		return !bpf_xdp_store_bytes(ctx, 0, (void *)&w->eth, sizeof(w->eth) + ((n - ETH_HLEN) & OUTER_MASK));
	paste_ethernet(&w->eth, data);
	__builtin_memcpy(to, from, least);
	for (__u32 i = least / 4; i < MAX_OUTER / 4; i++)
		if (sizeof(w->eth) + 4 * i < n)
			to[i] = from[i];
	return true;
}

/* Writes so many bytes of the copy to where the frame begins. */
static __always_inline bool paste_head(struct xdp_md *ctx, const struct header *h, __u32 at, __u64 n)
{
	at &= MAX_BEGIN;
	if (n == HOP_HEAD && paste_hop(h, (void *)(long)ctx->data + at, (void *)(long)ctx->data_end))
		return true;
	n &= HEAD_MASK;
	asm volatile("" : "+r"(n)); /* as header_length() */
	return n >= ETH_HLEN && !bpf_xdp_store_bytes(ctx, at, (void *)&h->eth, n);
}

enum written {
	WRITTEN,
	UNTOUCHED, /* it could not be done, and the frame is as it came */
	TORN,	   /* it could not be done completely */
};

/* Carries the edit out. */
static __always_inline enum written paste_edit(struct xdp_md *ctx, const struct frame *f)
{
	const struct edit *e = &f->edit;
	int less = shrinks(e);

	if (less && bpf_xdp_adjust_head(ctx, less))
		return UNTOUCHED;
	if (e->outer && !paste_outer(ctx, &f->outer, e->outer))
		return TORN;
	if (e->puts && !paste_head(ctx, &f->header, e->outer, e->puts))
		return less || e->outer ? TORN : UNTOUCHED;
	return WRITTEN;
}

static long admit_pass(__u32 i, struct turn *t)
{
	struct frame *f = t->f;

	if (i >= MAX_HOPS || admit(f, f->passed[i].out))
		return 0;
	f->from = f->passed[i].out;
	f->hops = i + 1;
	f->drop = REASON_POLICED;
	return 1;
}

/*
 * Asks the policers of all links that the frame has crossed, in this order. Where one is against it, the frame has come
 * to its end: no router behind has passed it. Returns an enum reason.
 */
__noinline int admit_all(struct frame *f)
{
	struct turn t = {.f = f};

	if (!with_policers || !f)
		return CONTINUE;
	f->drop = CONTINUE;
	if (!admit(f, f->entered)) {
		f->from = f->entered;
		f->hops = 0;
		return REASON_POLICED;
	}
	bpf_loop(f->hops, admit_pass, &t, 0);
	return f->drop;
}

/*
 * The one exit: by the way that has been chosen (XDP_REDIRECT, XDP_TX); XDP_DROP, where a policer drops the frame; or
 * XDP_PASS, where nothing has happened yet, and nothing happens. Policers are asked last, when the frame cannot be left
 * to the programs of tc any more, which would ask them again.
 */
static __always_inline int leave_by(struct xdp_md *ctx, struct frame *f, int verdict)
{
	enum reason why;

	if (verdict == XDP_PASS)
		return XDP_PASS;
	switch (paste_edit(ctx, f)) {
	case WRITTEN:
		why = with_policers && f->policed ? admit_all(f) : CONTINUE;
		if (why == CONTINUE)
			return verdict;
		count_drop(f->from, why);
		return XDP_DROP;
	case UNTOUCHED:
		return XDP_PASS;
	default:
		return XDP_ABORTED;
	}
}

/*
 * May the packet program of the node where the walk has ended be called in XDP? When it has been, the frame must not be
 * left to tc as it came.
 */
static __always_inline bool calls_node(const struct xdp_md *ctx, const struct frame *f)
{
	/* Linux before 6.3 loses what is redirected in several buffers. */
	return with_programs && f->why == TO_PROGRAM && keeps_length(f) && can_hand_over() &&
	       (long)ctx->data_end - (long)ctx->data == f->begin + f->length;
}

/* Calls it. leave_by() has written what routers before have changed. Does not come back, if the node has a program. */
static __always_inline int call_node(struct xdp_md *ctx, struct frame *f)
{
	f->begin = 0;
	bpf_tail_call(ctx, &node_programs_xdp, f->router);
	count_drop(f->from, REASON_NO_PROGRAM);
	return XDP_DROP;
}
