/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * node_xdp: as node_tc (node.c), for frames that a line card has brought to the node in XDP. A frame goes on there with
 * walk_on_xdp (tunnelcard.c); XDP leads to no kernel of a node, and makes no copies, so what is punted or flooded is
 * handed over to tc (handover.h).
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "fastpath.h"
#include "handover.h"
#include "node_maps.h"
#include "node_udp.h"
#include "program_xdp.h"
#include "sample.h"

static __always_inline int drop_xdp(struct node_traffic *c, enum program_fault why)
{
	drop_frame(c, why);
	return XDP_DROP;
}

/*
 * Out by the port, behind which the walk goes on. At the limit of calls the frame enters anew, by tc; where it cannot,
 * it is lost behind the node, as in walk_on_xdp.
 */
static __always_inline int send_xdp(struct xdp_md *ctx, struct frame *f, struct node_traffic *c, __u32 port,
				    __u32 queue)
{
	struct handover h = {.kind = HANDOVER_ENTER, .port = port, .met = f->met};
	int verdict;

	h.queue = f->queue = queue_of(c, port, queue);
	f->from = port;
	bpf_tail_call(ctx, &walks_xdp, 0);
	verdict = hand_over(ctx, &h);
	if (verdict == XDP_ABORTED)
		count_drop(port, REASON_NO_MEMORY);
	return verdict;
}

/* As punt_to_tap(). */
__noinline int head_punt(struct xdp_md *ctx, struct program_record *r)
{
	struct pergola_slow slow = {};

	if (!r)
		return -1;
	describe_punt(&slow, r);
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(slow)))
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, &slow, sizeof(slow));
}

/* As punt(). A frame is counted once: as punted when it has been handed over, or with a fault. */
static __always_inline int punt_xdp(struct xdp_md *ctx, const struct frame *f, const struct settings *n,
				    struct node_traffic *c, struct program_record *r)
{
	struct handover to_node = {.kind = HANDOVER_PUNT, .port = f->at, .met = f->met};
	struct handover to_tap = {.kind = HANDOVER_SLOW, .port = n->number, .met = f->met};
	bool handed = n->slow_path == SLOW_SOCKET;
	int verdict;

	switch (slow_path_of(n, f)) {
	case SLOW_INTERFACE:
		verdict = hand_over(ctx, &to_node);
		break;
	case SLOW_SOCKET:
		verdict = head_punt(ctx, r) ? XDP_ABORTED : hand_over(ctx, &to_tap);
		break;
	default:
		return drop_xdp(c, PROGRAM_NO_SLOW_PATH);
	}
	if (verdict == XDP_ABORTED)
		return drop_xdp(c, PROGRAM_NO_ROOM);
	c->handed += handed;
	count_verdict(c, PERGOLA_PUNT);
	return verdict;
}

/* tc counts it. */
static __always_inline int flood_xdp(struct xdp_md *ctx, const struct frame *f, const struct settings *n,
				     struct node_traffic *c, const struct program_outcome *o)
{
	struct handover h = {.kind = HANDOVER_FLOOD, .port = f->at, .met = f->met, .number = n->number};
	__u64 interfaces = o->flood;
	int verdict;

	h.queue = o->queue > 0xffff ? 0xffff : o->queue; /* no port has so many */
	interfaces &= n->interfaces & ~1ULL;
	if (!interfaces)
		return drop_xdp(c, PROGRAM_NO_INTERFACE);
	for (int i = 0; i < 4; i++)
		h.flood[i] = interfaces >> 16 * i;
	verdict = hand_over(ctx, &h);
	return verdict == XDP_ABORTED ? drop_xdp(c, PROGRAM_NO_ROOM) : verdict;
}

/* As send_udp(). tc knows the uplink. */
static __always_inline int udp_xdp(struct xdp_md *ctx, const struct frame *f, const struct settings *n,
				   struct node_traffic *c, const struct program_outcome *o)
{
	struct handover h = {.kind = HANDOVER_UDP, .port = n->slice, .met = f->met};
	enum program_fault why;
	struct datagram d;
	int verdict;

	why = make_datagram(&d, o, o->length);
	if (why != PROGRAM_OK)
		return drop_xdp(c, why);
	if (bpf_xdp_adjust_head(ctx, -(int)UDP_HEADERS) || bpf_xdp_store_bytes(ctx, 0, &d.eth, DATAGRAM_HEAD))
		return drop_xdp(c, PROGRAM_NO_ROOM);
	verdict = hand_over(ctx, &h);
	if (verdict == XDP_ABORTED)
		return drop_xdp(c, PROGRAM_NO_ROOM);
	count_verdict(c, PERGOLA_UDP);
	return verdict;
}

/* tc has the program look at the frame once more, as it came, and counts it. */
static __always_inline int copy_xdp(struct xdp_md *ctx, const struct frame *f, const struct settings *n,
				    struct node_traffic *c, const struct program_input *in, __u32 bytes)
{
	struct handover h = {.kind = HANDOVER_RUN, .port = f->at, .met = f->met - 1, .number = n->number};
	int verdict;

	h.run.interface = in->interface;
	h.run.outer_port = in->outer_port;
	__builtin_memcpy(h.run.outer_address, in->outer_address + 12, sizeof(h.run.outer_address));
	verdict = hand_over(ctx, &h);
	if (verdict == XDP_ABORTED)
		return drop_xdp(c, PROGRAM_NO_ROOM);
	c->frames--;
	c->bytes -= bytes;
	return verdict;
}

/* As carry_out(). */
static __always_inline int carry_out_xdp(struct xdp_md *ctx, struct frame *f, const struct settings *n,
					 struct node_traffic *c, struct program_record *r)
{
	const struct program_outcome *o = &r->outcome;
	__u32 port;

	if (o->fault != PROGRAM_OK)
		return drop_xdp(c, o->fault);
	switch (o->verdict) {
	case PERGOLA_SEND:
		port = port_of(n, o->output);
		if (!port)
			return drop_xdp(c, PROGRAM_NO_INTERFACE);
		count_verdict(c, PERGOLA_SEND);
		count_walked_out(port, o->length);
		return send_xdp(ctx, f, c, port, o->queue);
	case PERGOLA_FLOOD:
		return flood_xdp(ctx, f, n, c, o);
	case PERGOLA_PUNT:
		return punt_xdp(ctx, f, n, c, r);
	case PERGOLA_UDP:
		return udp_xdp(ctx, f, n, c, o);
	default:
		count_verdict(c, PERGOLA_DROP);
		return XDP_DROP;
	}
}

SEC("xdp.frags")
int node_xdp(struct xdp_md *ctx)
{
	const struct settings *n = find_node_settings();
	struct program_record *r = find_program_record();
	struct node_traffic *c = find_node_counts();
	struct frame *f = find_frame();
	struct program_input in = {};
	__u32 bytes = bpf_xdp_get_buff_len(ctx);
	struct work w;

	if (!n || !r || !c || !f)
		return XDP_ABORTED;
	if (!read_sender(f, &in))
		return drop_xdp(c, PROGRAM_NO_INTERFACE);
	if (!begin_work(&w, f, n->slice, is_sampled(c->offered++))) {
		count_metered(n->slice);
		return drop_xdp(c, PROGRAM_METERED);
	}
	c->frames++;
	c->bytes += bytes;
	if (f->met >= MAX_MET)
		return drop_xdp(c, PROGRAM_LOOP);
	f->met++;
	in.interface = f->interface;
	in.interfaces = n->interfaces;
	in.first_table = n->table;
	in.tables = n->tables;
	in.single = 1;
	run_xdp(ctx, r, &in);
	pay_work(&w, f, n->slice);
	if (r->outcome.more && r->outcome.verdict == PROGRAM_ELSEWHERE)
		return copy_xdp(ctx, f, n, c, &in, bytes);
	count_arrival(f, n, &r->outcome, bytes);
	return carry_out_xdp(ctx, f, n, c, r);
}
