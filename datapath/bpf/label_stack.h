/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The label stack of the frame at work. The frame is not touched before it leaves: a record says how many of the labels
 * that it came with are gone, and which stand in their place; settle_labels() makes an edit of it. Between two
 * operations, the TTL of an IP header in the copy is what it is to be: what is left to settle() otherwise (walk.h) is
 * written before labels go on.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "header.h"
#include "label_entry.h"
#include "label_table.h"
#include "needs.h"
#include "punt.h"
#include "reasons.h"
#include "reserve.h"

#define MAX_LABELS 4 /* datapath.MaxLabels; that are taken off a frame, and that stand on it in their place */

/* What has become of the labels that a frame came with, and of its IP header. */
struct label_edit {
	__u8 hidden; /* IP is behind labels that the frame came with: the copy does not have it at its place */
	__u8 popped; /* of the labels that the frame came with */
	__u8 pushed;
	__u8 pad;
	__u32 lowered; /* by so much has the TTL of IP been lowered */
	__be32 entry[MAX_LABELS]; /* pushed, the lowest first */
};

/* The label stack of the frame at work. One for each CPU, as the record of the frame is (frame.h). */
struct label_stack {
	struct label_edit is;
	struct label_edit came; /* as it was when the frame came to the router where it is (unwalked.h), */
	__u32 arrived;		/* and frame.packet */
	__u32 room;		/* of what is too big: of what length it would fit, as it came */
	__u32 used;		/* the frame has labels, or had */
	__u32 aged; /* hops that the header's TTL does not have to be lowered for any more */
	__u32 sum;  /* of what was popped, to be added to a sum of the frame */
	/* The last reservation that it was measured by: its number, 0 where there was none; and what was noted. */
	__u32 within;
	__u64 measured, frames, bytes;
	__u64 began; /* when that was, if the walk's time is measured from there on: ns; else 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct label_stack);
} label_stacks SEC(".maps");

static __always_inline struct label_stack *find_label_stack(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&label_stacks, &zero);
}

/* The frame meets its first label: one that it came with (hidden), or one that it gets. */
static __always_inline void begin_stack(struct label_stack *s, bool hidden)
{
	s->used = true;
	s->is.hidden = hidden;
	s->is.popped = 0;
	s->is.pushed = 0;
	s->is.lowered = 0;
	s->aged = 0;
	s->sum = 0;
	s->measured = 0;
	s->began = 0;
}

static __always_inline bool is_labelled(const struct frame *f)
{
	return f->header.eth.h_proto == bpf_htons(ETH_P_MPLS_UC);
}

/* A number below MAX_LABELS, so that the verifier sees it, wherever the compiler has found out that it is. */
static __always_inline __u32 within(__u32 n)
{
	asm volatile("" : "+r"(n));
	return n & (MAX_LABELS - 1);
}

/* Ones' complement: csum_add() in the kernel. */
static __always_inline __u32 sum_add(__u32 a, __u32 b) { return a + b + (a + b < b); }

/* The frame grows, or shrinks. */
static __always_inline void resize(struct frame *f, __s32 bytes)
{
	f->length += bytes;
	f->longest += bytes;
	f->packet += bytes;
}

/* The entry on top, as a number; NO_ENTRY: there is none, or it is too deep. */
static __always_inline __u64 read_top(const struct frame *f, const struct label_stack *s)
{
	const half *came = (const void *)&f->header.ip4;
	__u32 n = s->is.pushed;

	if (n)
		return bpf_ntohl(s->is.entry[within(n - 1)]);
	n = s->is.popped;
	if (!s->is.hidden || n >= MAX_LABELS || f->length < ETH_HLEN + sizeof(*came))
		return NO_ENTRY;
	return bpf_ntohl(came[within(n)]);
}

static __always_inline void pop_top(struct frame *f, struct label_stack *s, __u32 entry)
{
	if (s->is.pushed) {
		s->is.pushed--;
	} else {
		s->is.popped++;
		s->sum = sum_add(s->sum, ~bpf_htonl(entry));
	}
	resize(f, -(__s32)sizeof(__be32));
}

static __always_inline bool push_top(struct frame *f, struct label_stack *s, __u32 entry)
{
	__u32 n = s->is.pushed;

	if (n >= MAX_LABELS)
		return false;
	s->is.entry[within(n)] = bpf_htonl(entry);
	s->is.pushed = n + 1;
	resize(f, sizeof(__be32));
	return true;
}

/* The entry of an NHLFE's label: `below` is one with the traffic class, `ttl` has ENTRY_BOTTOM, too, if it is due. */
static __always_inline __be32 entry_of(const struct nhlfe *n, __u32 i, __u32 below, __u32 ttl)
{
	const __u32 kept = ENTRY_TC & -(__u32)(n->flags / LABEL_KEEP_TC & 1); /* no branch to be followed */

	return bpf_htonl((n->push[i] & ~kept) | (below & kept) | ttl);
}

/* The top label gives place to the one that an NHLFE has: the frame stays as long as it is. */
static __always_inline void swap_top(struct label_stack *s, const struct nhlfe *n, __u32 entry, __u32 ttl)
{
	__u32 at = s->is.pushed - 1;

	if (!s->is.pushed) {
		s->is.popped++;
		s->sum = sum_add(s->sum, ~bpf_htonl(entry));
		s->is.pushed = 1;
		at = 0;
	}
	s->is.entry[within(at)] = entry_of(n, 0, entry, (entry & ENTRY_BOTTOM) | ttl);
}

/*
 * Puts an NHLFE's labels on what is there: `below` is an entry with the traffic class and, where it is IP,
 * ENTRY_BOTTOM. The first one has a TTL of its own.
 */
static __always_inline bool push_all(struct frame *f, struct label_stack *s, const struct nhlfe *n, __u32 below,
				     __u32 first, __u32 others)
{
	__u32 pushed = s->is.pushed, pushes = n->pushes, ttl = (below & ENTRY_BOTTOM) | first;

	if (pushes > MAX_PUSHES || pushed + pushes > MAX_LABELS)
		return false;
	for (__u32 i = 0; i < MAX_PUSHES; i++) {
		if (i >= pushes)
			break;
		s->is.entry[within(pushed + i)] = entry_of(n, i, below, ttl);
		ttl = others;
	}
	s->is.pushed = pushed + pushes;
	resize(f, pushes * sizeof(__be32));
	return true;
}

/* Lowers the TTL of the IP header in the copy. */
static __always_inline void lower_ip(struct frame *f, struct label_stack *s, __u32 by)
{
	age(&f->header, by);
	s->is.lowered += by;
}

/*
 * The last label is off: what is behind it takes its place in the copy, with ports, which four labels before IPv6 have
 * kept out of it. False: it is neither IPv4 nor IPv6.
 */
static __always_inline bool expose_ip(struct frame *f, struct label_stack *s)
{
	half *to = (void *)&f->header.ip4;
	const __u32 ports = sizeof(struct ipv6hdr) / sizeof(*to);
	__u32 skip = s->is.popped;

	asm volatile("" : "+r"(skip)); /* as within() */
	skip &= 2 * MAX_LABELS - 1;
	if (f->length < ETH_HLEN + sizeof(struct iphdr))
		return false;
	if (s->is.hidden) {
		for (__u32 i = 0; i <= ports; i++)
			to[i] = to[i + skip];
		if (f->header.ip4.version == 6)
			to[ports] &= (skip / MAX_LABELS & 1) - 1;
		s->is.hidden = 0;
	}
	switch (f->header.ip4.version) {
	case 4:
		f->header.eth.h_proto = bpf_htons(ETH_P_IP);
		return true;
	case 6:
		f->header.eth.h_proto = bpf_htons(ETH_P_IPV6);
		return f->length >= ETH_HLEN + sizeof(struct ipv6hdr);
	}
	return false;
}

/* The TTL of what is on top now; 256: there is nothing that may be looked at. */
static __always_inline __u32 ttl_on_top(const struct frame *f, const struct label_stack *s)
{
	__u64 top;

	if (!is_labelled(f))
		return ttl(&f->header);
	top = read_top(f, s);
	return top == NO_ENTRY ? 256 : ENTRY_TTL(top);
}

static __always_inline enum reason lower_top(struct frame *f, struct label_stack *s, __u32 have, __u32 want)
{
	__u64 top;

	if (!is_labelled(f)) {
		lower_ip(f, s, have - want);
		return CONTINUE;
	}
	top = read_top(f, s);
	pop_top(f, s, top);
	return push_top(f, s, (top & ~0xffull) | want) ? CONTINUE : REASON_LABEL_STACK;
}

/* Hops for which the TTL of IP is still to be lowered. */
static __always_inline __u32 unpaid_hops(const struct frame *f)
{
	const struct label_stack *s = with_mpls ? find_label_stack() : NULL;

	return s && s->used ? f->hops - s->aged : f->hops;
}

/* The walk begins: nothing is known of labels. */
__noinline int begin_labels(void)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;

	if (s)
		s->used = 0;
	return 0;
}

/* The walk ends, or the frame is to be measured by the next reservation. */
static __always_inline void end_measure(struct label_stack *s)
{
	if (!s->began)
		return;
	pay_for_walk(s->measured, s->began);
	s->began = 0;
}

/*
 * Writes the labels into the copy, before as much of IP's header as routers change, and describes the edit. (Nothing
 * is between: what came with labels that are still on has not had its IP header changed.) Returns false where the frame
 * has met no label. Where the walk ends because it would have too many steps, the router's kernel gets what is left.
 */
__noinline int settle_labels(struct frame *f)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	half *words, ip[(HOP_HEAD - ETH_HLEN) / sizeof(half)];
	__u32 pushed, sum;

	if (!f || !s || !s->used)
		return false;
	if (f->why == AGAIN)
		f->why = PUNT_LOOP;
	words = (half *)&f->header.ip4;
	pushed = s->is.pushed;
	asm volatile("" : "+r"(pushed)); /* as within() */
	pushed &= 2 * MAX_LABELS - 1;
	if (!is_labelled(f) && f->hops > s->aged)
		lower_ip(f, s, f->hops - s->aged);
	sum = s->sum;
	f->edit.takes = ETH_HLEN + s->is.popped * sizeof(__be32);
	f->edit.puts = ETH_HLEN + pushed * sizeof(__be32);
	if (!s->is.hidden) {
		__builtin_memcpy(ip, words, sizeof(ip));
		if ((*(__u8 *)ip & 0xf0) == 0x60)
			sum = sum_add(sum, ~(__u32)bpf_htons(s->is.lowered));
		for (__u32 i = 0; i < sizeof(ip) / sizeof(*ip); i++)
			words[pushed + i] = ip[i];
		f->edit.takes += sizeof(ip);
		f->edit.puts += sizeof(ip);
	} else if (!pushed) {
		words[0] = words[within(s->is.popped)]; /* is not written, and tells LSPs apart (flow.h) */
	}
	for (__u32 i = 0; i < MAX_LABELS; i++) {
		__be32 entry = s->is.entry[i];

		if (i >= pushed)
			break;
		words[within(pushed - 1 - i)] = entry;
		sum = sum_add(sum, entry);
	}
	f->edit.sum = sum;
	end_measure(s);
	return true;
}
