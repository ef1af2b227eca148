// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * port_ingress: tc ingress of a port, where every frame that a node sends enters the data path.
 *
 * Frames that meet no router are not parsed beyond the destination address and not changed: any EtherType, VLAN tags,
 * jumbo frames and GSO super-frames pass as they are, with their offloads (checksum, TSO). Where a router would be
 * next, the frame walks (walk.h); offloads stay as they are there, too.
 *
 * walk_on: goes on with a frame that a node's packet program gives back (node.h).
 *
 * taken_over: tc ingress of the device where frames come out that XDP has handed over (handover.h).
 *
 * slow_inject: takes a frame that a node's slow path wrote (slow.h), to the node's packet program.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "handover.h"
#include "link.h"
#include "shrink.h"
#include "skb.h"
#include "slow.h"

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	struct frame *f = find_frame();
	enum reason why;

	if (!f)
		return TC_ACT_SHOT;
	init_frame(skb, f);
	if (with_queues && with_programs && programs_met(skb)) /* it enters anew (node.c) */
		f->queue = skb->tc_index;
	why = believe_no_class(skb, f);
	if (why == CONTINUE)
		why = cross(f);
	if (with_programs && why == REASON_UNKNOWN_PORT && node_of_tap(skb->ifindex))
		bpf_tail_call(skb, &walks, SLOW_INJECT);
	if (why == CONTINUE)
		why = pass_nodes(skb, f);
	return leave(skb, f, why);
}

/* Is it not what the kernel noted about it, before packet programs changed it? */
static __always_inline bool is_unread(const struct __sk_buff *skb)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	return (void *)(eth + 1) > (void *)(long)skb->data_end || eth->h_proto != skb->protocol;
}

/* Goes on as the record says. */
static __always_inline int continue_walk(struct __sk_buff *skb, struct frame *f)
{
	__u8 unread = f->unread || is_unread(skb);
	enum reason why = CONTINUE;
	__u32 from = f->from, queue = f->queue;

	init_frame(skb, f);
	f->unread = unread;
	if (f->returned == RETURNED_PUNTED) {
		f->mode = MODE_PEER;
		return leave(skb, f, why);
	}
	f->from = from;
	f->queue = queue;
	why = believe_no_program(skb);
	if (why == CONTINUE)
		why = cross(f);
	if (why == CONTINUE)
		why = pass_nodes(skb, f);
	return leave(skb, f, why);
}

SEC("tc")
int walk_on(struct __sk_buff *skb)
{
	struct frame *f = find_frame();

	return f ? continue_walk(skb, f) : TC_ACT_SHOT;
}

/* A UDP packet that a packet program has sent in XDP. */
static __always_inline int to_uplink(struct __sk_buff *skb, __u32 slice)
{
	const struct uplink *up = find_uplink();

	if (!up || !up->inside) {
		count_drop(0, REASON_NO_UPLINK);
		return TC_ACT_SHOT;
	}
	skb->priority = card_class(slice);
	return bpf_redirect(up->inside, 0);
}

/* No tail call of walk_on: the last call that is possible must be that of a node (node.h). */
SEC("tc")
int taken_over(struct __sk_buff *skb)
{
	struct frame *f = find_frame();
	struct handover h = {};

	if (!with_programs || !f || !take_handover(skb, &h))
		return TC_ACT_SHOT;
	skb->mark = MARK_OURS | h.met;
	f->queue = h.queue;
	if (h.kind == HANDOVER_FLOOD || h.kind == HANDOVER_RUN) {
		f->at = h.port;
		if (h.kind == HANDOVER_FLOOD) {
			for (int i = 3; i >= 0; i--)
				f->flood = f->flood << 16 | h.flood[i];
		} else {
			f->interface = h.run.interface;
			f->outer_port = bpf_htons(h.run.outer_port);
			__builtin_memcpy(&f->outer_address, h.run.outer_address, sizeof(f->outer_address));
			f->unread = false;
			f->returned = RETURNED_SENT;
		}
		bpf_tail_call(skb, &node_programs, h.number);
		f->flood = 0;
		f->outer_port = 0;
		count_drop(h.port, REASON_NO_PROGRAM);
		return TC_ACT_SHOT;
	}
	if (h.kind == HANDOVER_UDP)
		return to_uplink(skb, h.port);
	if (h.kind == HANDOVER_SLOW)
		return bpf_redirect(FIRST_TAP + h.port, 0);
	f->unread = false;
	f->from = f->at = h.port;
	f->returned = h.kind == HANDOVER_PUNT ? RETURNED_PUNTED : RETURNED_SENT;
	return continue_walk(skb, f);
}

/* What the slow path wants of a frame. The header comes off. */
static __always_inline enum returned read_slow(struct __sk_buff *skb, struct frame *f)
{
	struct {
		__u8 align[2];
		struct pergola_slow slow;
	} h = {};
	struct ethhdr eth;
	__u32 length = skb->len;

	if (bpf_skb_load_bytes(skb, 0, &h.slow, sizeof(h.slow)) ||
	    bpf_skb_load_bytes(skb, sizeof(h.slow), &eth, sizeof(eth)))
		return WRITTEN_BADLY;
	if (h.slow.ethertype != bpf_htons(PERGOLA_SLOW_ETHERTYPE) || h.slow.version != PERGOLA_SLOW_VERSION ||
	    h.slow.header != bpf_htons(sizeof(h.slow)))
		return WRITTEN_BADLY;
	f->interface = bpf_ntohs(h.slow.interface);
	f->queue = bpf_ntohl(h.slow.queue);
	if (!cut_front(skb, sizeof(h.slow), length) || bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return WRITTEN_BADLY;
	switch (h.slow.kind) {
	case PERGOLA_SLOW_SEND:
		return WRITTEN_TO_SEND;
	case PERGOLA_SLOW_ENTER:
		return WRITTEN_TO_ENTER;
	default:
		return WRITTEN_BADLY;
	}
}

SEC("tc")
int slow_inject(struct __sk_buff *skb)
{
	struct frame *f = find_frame();

	if (!f)
		return TC_ACT_SHOT;
	init_frame(skb, f);
	f->returned = read_slow(skb, f);
	f->unread = true; /* it is not what the kernel noted about what was written */
	f->at = 0;
	bpf_tail_call(skb, &node_programs, node_of_tap(skb->ifindex));
	f->returned = RETURNED_SENT;
	count_drop(0, REASON_NO_PROGRAM);
	return TC_ACT_SHOT;
}

/*
 * A frame of the agent's enters at a port, as if the port's node had sent it. It is run by BPF_PROG_TEST_RUN, in the
 * namespace of the ports, and attached nowhere.
 */
SEC("tc")
int enter_port(struct __sk_buff *skb)
{
	return bpf_clone_redirect(skb, skb->cb[0], BPF_F_INGRESS);
}
