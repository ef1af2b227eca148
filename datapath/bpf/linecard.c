// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * linecard: XDP at a device that leads out of the machine and is itself a port.
 *
 * It does what port_ingress at the same device would do, without an sk_buff, as long as the frame ends at a device
 * that takes frames from XDP programs (map devices), at a node that has a packet program, which is called then, or
 * where a policer drops it on the way there. In all other cases, also where the frame is to be dropped, it does nothing
 * at all: the frame goes on to port_ingress as it came, and is counted there.
 *
 * linecard_below: the same for frames of best effort, and for those that packet programs are to see, where early
 * demultiplexing is on (early.h). The latter go on to port_ingress, as the kernel calls programs of XDP from those of the
 * same kind alone.
 *
 * pass_xdp: at the device where handed over frames come out (handover.h). A veth device takes frames from XDP where the
 * other end of its pair has a program.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "early.h"
#include "link.h"
#include "tunnel.h"
#include "xdp.h"

/* below: this is the thread of best effort (early.h), from which no packet program can be called. */
static __always_inline int carry(struct xdp_md *ctx, struct frame *f, const bool below)
{
	bool through, called;
	int verdict;

	clear_frame(f, true);
	f->length = f->longest = bpf_xdp_get_buff_len(ctx);
	f->from = f->entered = ctx->ingress_ifindex;
	if (cross(f) != CONTINUE || f->mode != MODE_PEER)
		return XDP_PASS;
	through = walk_through(ctx, f);
	called = !below && !through && !(with_early && programs_wait()) && calls_node(ctx, f);
	if (!through && !called)
		return XDP_PASS;
	if (through && f->external && begins_tunnel(f->at)) /* its entry in devices is for what comes out */
		return XDP_PASS;
	verdict = leave_by(ctx, f, called ? XDP_REDIRECT : to_device(f->at));
	if (verdict == XDP_REDIRECT || verdict == XDP_DROP)
		account(f);
	if (!below && called && verdict == XDP_REDIRECT) {
		f->met = f->by_card = 0;
		return call_node(ctx, f);
	}
	return verdict;
}

/* The frame, which is as it came, waits for the thread below, or is dropped. */
__noinline int put_off(struct xdp_md *ctx, struct frame *f, const struct early *rules)
{
	int verdict;

	if (!f || !rules)
		return XDP_PASS;
	verdict = defer(f, rules, &below_ports);
	if (verdict == XDP_DROP)
		count_drop(ctx->ingress_ifindex, REASON_NO_TIME);
	return verdict;
}

SEC("xdp.frags")
int linecard(struct xdp_md *ctx)
{
	struct frame *f = find_frame();
	enum turn_of turn;
	struct early *rules;
	int verdict;

	if (!f)
		return XDP_PASS;
	if (with_early && is_early(&rules)) {
		turn = find_turn(f, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
		if (turn == TURN_LAST)
			return put_off(ctx, f, rules);
		begin_first(turn);
	}
	verdict = carry(ctx, f, false);
	if (with_early)
		end_first(verdict);
	return waits_for_program(f, &rules, verdict) ? put_off(ctx, f, rules) : verdict;
}

/* The same in the thread below: of best effort. */
SEC("xdp.frags/cpumap")
int linecard_below(struct xdp_md *ctx)
{
	struct best_effort *b = find_best_effort();
	struct frame *f = find_frame();
	int verdict;
	__u64 begun;

	if (!with_early || !f || !b)
		return XDP_PASS;
	begun = begin_below(b, f);
	verdict = carry(ctx, f, true);
	end_below(b, f, begun);
	return verdict;
}

SEC("xdp.frags")
int pass_xdp(struct xdp_md *ctx __attribute__((unused))) { return XDP_PASS; }
