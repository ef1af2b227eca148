/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Floods, copies of a frame to several interfaces of a node; and copies that differ, each of which a filter of its own
 * sends (pergola_result.more).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "fastpath.h"
#include "frame.h"
#include "meter.h"
#include "node_maps.h"
#include "node_out.h"

/*
 * How many copies floods of all nodes of a slice may make: so many a second, and so many at once. A storm, of nodes
 * that flood in a circle, takes no more of the host than that, and ends when the last copy has met as many programs as
 * a frame may (node.h).
 */
#define COPIES_A_SECOND 50000
#define COPIES_AT_ONCE 128 /* of the 1,000 frames that may wait for a CPU (net.core.netdev_max_backlog) */
#define NS_OF_COPY (1000000000 / COPIES_A_SECOND)

/*
 * A flood. What changes from copy to copy is in a map: Linux 6.1's verifier looks at the callback of bpf_loop() once,
 * and takes what it finds on the stack for what is there each time.
 */
struct copying {
	__u64 left;	    /* interfaces to come */
	__u32 before;	    /* port of the interface before: the last one gets the frame itself */
	__u32 copies, lost; /* as in the counters */
	__u32 queue;	    /* of the port before, where copies differ */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copying);
} node_floods SEC(".maps");

struct copier {
	struct __sk_buff *skb;
	struct frame *frame;
	const struct settings *node;
	struct node_traffic *counts;
	struct copying *all;
	__u32 queue;
};

static long copy_to(__u32 number, struct copier *to)
{
	struct copying *c = to->all;
	__u32 interface = number + 1, port;

	if (interface > 63 || !(c->left >> interface))
		return 1;
	if (!(c->left >> interface & 1))
		return 0;
	port = port_of(to->node, interface);
	if (!port)
		return 0;
	if (c->before) {
		choose_queue(to->skb, to->frame, to->counts, c->before, to->queue);
		if (bpf_clone_redirect(to->skb, c->before, BPF_F_INGRESS))
			c->lost++;
		else
			c->copies++;
	}
	count_walked_out(port, to->skb->len);
	c->before = port;
	return 0;
}

/* May so many copies be made now? */
static __always_inline bool admits(__u32 slice, __u64 copies)
{
	struct fastpath_time *t = copies ? find_time(slice) : NULL;

	if (!copies)
		return true;
	return t && take_tokens(&t->copies, COPIES_AT_ONCE * NS_OF_COPY, copies * NS_OF_COPY, bpf_ktime_get_ns());
}

/* A copy enters each port as if the node had sent it there. The record is used no further meanwhile: copies wait. */
static __always_inline int flood(struct __sk_buff *skb, struct frame *f, const struct settings *n,
				 struct node_traffic *c, struct work *w, __u64 interfaces, __u32 queue)
{
	__u32 zero = 0;
	struct copying *all = bpf_map_lookup_elem(&node_floods, &zero);
	struct copier to = {.skb = skb, .frame = f, .node = n, .counts = c, .all = all, .queue = queue};

	interfaces &= n->interfaces & ~1ULL;
	if (!all || !interfaces)
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	if (!admits(n->slice, __builtin_popcountll(interfaces) - 1))
		return drop_frame(c, PROGRAM_STORM);
	*all = (struct copying){.left = interfaces};
	bpf_loop(63, copy_to, &to, 0);
	pay_work(w, f, n->slice);
	c->copies += all->copies;
	c->lost += all->lost;
	if (!all->before)
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	count_verdict(c, PERGOLA_FLOOD);
	return send_by(skb, f, c, all->before, queue);
}

/* Puts a clone into the port of the copy before. */
__noinline int send_before(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct copying *all = bpf_map_lookup_elem(&node_floods, &zero);
	struct node_traffic *c = find_node_counts();
	struct frame *f = find_frame();
	__u32 port;

	if (!all || !c || !f)
		return 0;
	port = all->before;
	all->before = 0;
	if (!port)
		return 0;
	choose_queue(skb, f, c, port, all->queue);
	if (bpf_clone_redirect(skb, port, BPF_F_INGRESS))
		all->lost++;
	else
		all->copies++;
	return 0;
}

/* Makes the frame what the record says of a copy, which goes next. Returns an enum program_fault. */
__noinline int take_copy(struct __sk_buff *skb, struct program_record *r)
{
	__u32 zero = 0, port;
	struct copying *all = bpf_map_lookup_elem(&node_floods, &zero);
	const struct settings *n = find_node_settings();
	int fault;

	if (!r || !all || !n)
		return PROGRAM_NO_ROOM;
	if (r->outcome.fault || r->outcome.verdict != PERGOLA_SEND)
		return r->outcome.fault;
	port = port_of(n, r->outcome.output);
	if (!port)
		return PROGRAM_NO_INTERFACE;
	fault = store_skb(skb, r, length_that_came(r));
	if (fault)
		return fault;
	count_walked_out(port, skb->len);
	all->before = port;
	all->queue = r->outcome.queue;
	return PROGRAM_OK;
}

/* What bpf_loop() hands to its callback has to be on the stack; all else is in maps, because the stack is small. */
struct to_copy {
	struct __sk_buff *skb;
};

static long make_copy(__u32 number, struct to_copy *to)
{
	struct program_record *r = find_program_record();
	const struct settings *n = find_node_settings();
	struct node_traffic *c = find_node_counts();
	__u64 fault;

	if (!r || !n || !c || !find_copy(r, n->table, n->tables))
		return 1;
	if (!admits(n->slice, 1)) {
		drop_frame(c, PROGRAM_STORM);
		return 1;
	}
	send_before(to->skb);
	format_copy(r, number + 1);
	fault = take_copy(to->skb, r);
	if (!fault)
		return 0;
	asm volatile("" : "+r"(fault)); /* as header_length() */
	if (fault < PROGRAM_FAULTS)
		c->faults[fault]++;
	return 0;
}

/*
 * Sends all copies but the last, which the frame itself becomes: it goes out by the port that is returned, by the queue
 * in the record. 0: by none. A function of its own is verified once.
 */
__noinline int send_copies(struct __sk_buff *skb, struct program_record *r, __u32 port)
{
	__u32 zero = 0;
	struct copying *all = bpf_map_lookup_elem(&node_floods, &zero);
	struct node_traffic *c = find_node_counts();
	struct to_copy to = {.skb = skb};

	if (!r || !all || !c)
		return 0;
	*all = (struct copying){.before = port, .queue = r->outcome.queue};
	bpf_loop(PERGOLA_COPIES - 1, make_copy, &to, 0);
	c->copies += all->copies;
	c->lost += all->lost;
	r->outcome.queue = all->queue;
	return all->before;
}

/* XDP has handed the frame over, to be flooded: it has met the program there. */
static __always_inline void resume_flood(struct frame *f, struct program_outcome *o)
{
	o->verdict = PERGOLA_FLOOD;
	o->fault = PROGRAM_OK;
	o->flood = f->flood;
	o->queue = f->queue;
	f->flood = 0;
	f->returned = RETURNED_SENT;
}
