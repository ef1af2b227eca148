/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How a frame leaves a packet program in tc: by a port of its node, to the node's kernel, or to its slow path.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "node.h"
#include "node_maps.h"
#include "program_skb.h"
#include "slow.h"

/* Notes it: in the record, and for a frame that enters anew beside the frame (port.c). */
static __always_inline void choose_queue(struct __sk_buff *skb, struct frame *f, struct node_traffic *c, __u32 port,
					 __u32 queue)
{
	f->queue = queue_of(c, port, queue);
	skb->tc_index = f->queue;
}

/*
 * Out by the port, behind which the walk goes on. A frame that has grown enters anew: the kernel still thinks that the
 * network header is where it was, and would shorten the frame in the wrong place. What a slow path wrote does, too: at
 * the limit of calls, walk_on would be called in the place of a node, and lose the frame.
 */
static __always_inline int send_by(struct __sk_buff *skb, struct frame *f, struct node_traffic *c, __u32 port,
				   __u32 queue)
{
	choose_queue(skb, f, c, port, queue);
	f->from = port;
	if (f->returned != RETURNED_GROWN) {
		f->returned = RETURNED_SENT;
		bpf_tail_call(skb, &walks, 0);
	}
	return bpf_redirect(port, BPF_F_INGRESS);
}

/* As it came, to the node. */
static __always_inline int punt_frame(struct __sk_buff *skb, struct frame *f)
{
	f->returned = RETURNED_PUNTED;
	bpf_tail_call(skb, &walks, 0);
	return bpf_redirect(f->at, 0);
}

/* What the slow path is told of a frame that is punted. */
static __always_inline void describe_punt(struct pergola_slow *slow, const struct program_record *r)
{
	const __u32 reach = key_reach; /* behind it are bytes of earlier frames */

	slow->ethertype = bpf_htons(PERGOLA_SLOW_ETHERTYPE);
	slow->version = PERGOLA_SLOW_VERSION;
	slow->kind = PERGOLA_SLOW_PUNTED;
	slow->header = bpf_htons(sizeof(*slow));
	slow->interface = bpf_htons(r->packet.interface);
	slow->reason = bpf_htonl(r->outcome.reason);
	slow->flow = bpf_htonl(r->outcome.flow);
	slow->queue = bpf_htonl(r->outcome.queue);
	slow->time = bpf_cpu_to_be64(bpf_ktime_get_ns());
	slow->length = bpf_htonl(r->packet.length);
	slow->outer_port = bpf_htons(r->packet.outer_port);
	slow->table = bpf_htons(r->packet.table);
	__builtin_memcpy(slow->outer_address, r->packet.outer_address, sizeof(slow->outer_address));
	for (__u32 i = 0; i < PERGOLA_KEY_SIZE / 8; i++) {
		if (i * 8 >= reach)
			break;
		__builtin_memcpy(slow->key + i * 8, r->packet.key + i * 8, 8);
	}
}

/* To the process that reads the tap, as it came, behind a header. The kernel drops what is not read. */
__noinline int punt_to_tap(struct __sk_buff *skb, struct program_record *r, __u32 number)
{
	struct pergola_slow slow = {};

	if (!r)
		return TC_ACT_SHOT;
	describe_punt(&slow, r);
	if (bpf_skb_change_head(skb, sizeof(slow), 0) || bpf_skb_store_bytes(skb, 0, &slow, sizeof(slow), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(FIRST_TAP + number, 0);
}

/* To the slow path, if there is one. */
static __always_inline int punt(struct __sk_buff *skb, struct frame *f, const struct settings *n,
				struct node_traffic *c, struct program_record *r)
{
	int action;

	switch (slow_path_of(n, f)) {
	case SLOW_INTERFACE:
		count_verdict(c, PERGOLA_PUNT);
		return punt_frame(skb, f);
	case SLOW_SOCKET:
		action = punt_to_tap(skb, r, n->number);
		if (action == TC_ACT_SHOT)
			return drop_frame(c, PROGRAM_NO_ROOM);
		c->handed++;
		count_verdict(c, PERGOLA_PUNT);
		return action;
	default:
		return drop_frame(c, PROGRAM_NO_SLOW_PATH);
	}
}

/* Sends a frame that the slow path wrote, as if the program had sent it. */
static __always_inline int send_written(struct __sk_buff *skb, struct frame *f, struct node_traffic *c, __u32 port)
{
	skb->mark = MARK_OURS | 1;
	count_walked_out(port, skb->len);
	return send_by(skb, f, c, port, f->queue);
}

/* Does what the slow path wants of a frame. Returns TC_ACT_OK where the program is to look at it. */
static __always_inline int take_written(struct __sk_buff *skb, struct frame *f, const struct settings *n,
					struct node_traffic *c, __u32 written)
{
	__u32 port;

	if (n->slow_path != SLOW_SOCKET)
		return drop_frame(c, PROGRAM_NO_SLOW_PATH);
	if (written == WRITTEN_BADLY)
		return drop_frame(c, PROGRAM_BAD_HEADER);
	port = port_of(n, f->interface);
	if (!port)
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	c->written++;
	return written == WRITTEN_TO_SEND ? send_written(skb, f, c, port) : TC_ACT_OK;
}
