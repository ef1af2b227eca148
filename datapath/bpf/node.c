// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * node_tc, node_xdp: the packet program of one node, called where a frame has come to the node's leg (node.h).
 *
 * Package node loads a copy for each node, with the slice's code spliced in. What the program is to know of its node is
 * in maps of the copy's own, so a replacement, with other interfaces or another slow path, is one store: that of the
 * program in node_programs. Its verdicts are carried out here as far as that needs nothing but the node's own ports;
 * the frame then goes on with walk_on (port.c).
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "fastpath.h"
#include "frame.h"
#include "node.h"
#include "node_flood.h"
#include "node_maps.h"
#include "node_out.h"
#include "node_udp.h"
#include "node_xdp.h"
#include "program_skb.h"
#include "sample.h"

/* Does what the program says. */
static __always_inline int carry_out(struct __sk_buff *skb, struct frame *f, const struct settings *n,
				     struct node_traffic *c, struct work *w, struct program_record *r)
{
	const struct program_outcome *o = &r->outcome;
	__u32 port;

	if (o->fault != PROGRAM_OK)
		return drop_frame(c, o->fault);
	switch (o->verdict) {
	case PERGOLA_SEND:
		port = port_of(n, o->output);
		if (!port)
			return drop_frame(c, PROGRAM_NO_INTERFACE);
		count_verdict(c, PERGOLA_SEND);
		count_walked_out(port, skb->len);
		if (o->more) {
			port = send_copies(skb, r, port);
			pay_work(w, f, n->slice);
			if (!port)
				return TC_ACT_SHOT;
		}
		return send_by(skb, f, c, port, o->queue);
	case PERGOLA_FLOOD:
		return flood(skb, f, n, c, w, o->flood, o->queue);
	case PERGOLA_PUNT:
		return punt(skb, f, n, c, r);
	case PERGOLA_UDP:
		return send_udp(skb, n, c, o);
	default:
		count_verdict(c, PERGOLA_DROP);
		return TC_ACT_SHOT;
	}
}

/* Stands before a frame in the place of its addresses. */
struct tagged_addresses {
	__u8 addresses[2 * ETH_ALEN];
	struct {
		__be16 protocol;
		__be16 tci;
	} tags[MAX_TAGS];
};

/*
 * The kernel takes VLAN tags out of frames, and keeps them beside them. The program sees frames as they were sent: tags
 * are put back. A sum of the frame that the device gave would be wrong afterwards: such a frame is not plain.
 */
__noinline int put_tags_back(struct __sk_buff *skb)
{
	struct tagged_addresses head = {};
	__u32 tags = 0, length;

	if (bpf_csum_update(skb, 0) >= 0 || bpf_skb_load_bytes(skb, 0, head.addresses, sizeof(head.addresses)))
		return PROGRAM_NOT_PLAIN;
	for (int i = 0; i < MAX_TAGS && skb->vlan_present; i++) {
		head.tags[i].protocol = skb->vlan_proto;
		head.tags[i].tci = bpf_htons(skb->vlan_tci);
		tags++;
		if (bpf_skb_vlan_pop(skb)) /* moves the next tag beside the frame, too */
			return PROGRAM_NO_ROOM;
	}
	if (skb->vlan_present)
		return PROGRAM_NOT_PLAIN;
	length = tags > 1 ? sizeof(head) : sizeof(head) - sizeof(head.tags[0]);
	if (bpf_skb_change_head(skb, length - sizeof(head.addresses), 0) ||
	    bpf_skb_store_bytes(skb, 0, &head, length, 0))
		return PROGRAM_NO_ROOM;
	return PROGRAM_OK;
}

/* Has the program look at the frame. Returns TC_ACT_SHOT where it does not come to that. */
static __always_inline int meet_program(struct __sk_buff *skb, struct frame *f, const struct settings *n,
					struct node_traffic *c, struct program_record *r,
					struct program_input *in)
{
	__u32 met = programs_met(skb), bytes = skb->len;
	enum program_fault why;

	c->frames++;
	c->bytes += bytes;
	if (met >= MAX_MET)
		return drop_frame(c, PROGRAM_LOOP);
	skb->mark = MARK_OURS | (met + 1);
	if (skb->vlan_present) {
		f->returned = RETURNED_GROWN;
		why = put_tags_back(skb);
		if (why != PROGRAM_OK)
			return drop_frame(c, why);
	}
	in->interface = f->interface;
	in->interfaces = n->interfaces;
	in->first_table = n->table;
	in->tables = n->tables;
	run_skb(skb, r, in);
	count_arrival(f, n, &r->outcome, bytes);
	if (r->outcome.start < 0)
		f->returned = RETURNED_GROWN;
	else if (r->outcome.start)
		f->unread = true;
	return TC_ACT_OK;
}

SEC("tc")
int node_tc(struct __sk_buff *skb)
{
	const struct settings *n = find_node_settings();
	struct program_record *r = find_program_record();
	struct node_traffic *c = find_node_counts();
	struct frame *f = find_frame();
	struct program_input in = {};
	struct work w;
	__u32 written;
	int action;

	if (!n || !r || !c || !f)
		return TC_ACT_SHOT;
	if (!read_sender(f, &in))
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	written = f->returned;
	f->returned = RETURNED_SENT;
	if (written >= WRITTEN_TO_SEND) {
		f->returned = RETURNED_GROWN; /* slow_inject was one call too many (node.h) */
		action = take_written(skb, f, n, c, written);
		if (action != TC_ACT_OK)
			return action;
	}
	if (!begin_work(&w, f, n->slice, is_sampled(c->offered++)) && !f->flood) {
		count_metered(n->slice);
		return drop_frame(c, PROGRAM_METERED);
	}
	if (f->flood)
		resume_flood(f, &r->outcome);
	else if (meet_program(skb, f, n, c, r, &in) != TC_ACT_OK)
		return TC_ACT_SHOT;
	pay_work(&w, f, n->slice);
	return carry_out(skb, f, n, c, &w, r);
}

char _license[] SEC("license") = "Dual BSD/GPL";
