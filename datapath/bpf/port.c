// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * port_ingress: tc ingress of a port, where every frame that a node sends enters the data path.
 *
 * Frames that meet no router are not parsed beyond the destination address and not changed: any EtherType, VLAN tags,
 * jumbo frames and GSO super-frames pass as they are, with their offloads (checksum, TSO). Where a router would be
 * next, the frame walks (walk.h); offloads stay as they are there, too.
 *
 * walk_on: goes on with a frame that a node's packet program gives back (node.h).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "link.h"
#include "skb.h"

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	struct frame *f = find_frame();
	enum reason why;

	if (!f)
		return TC_ACT_SHOT;
	init_frame(skb, f);
	why = cross(f);
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

SEC("tc")
int walk_on(struct __sk_buff *skb)
{
	struct frame *f = find_frame();
	enum reason why = CONTINUE;
	__u32 from;
	__u8 unread;

	if (!f)
		return TC_ACT_SHOT;
	from = f->from;
	unread = f->unread || is_unread(skb);
	init_frame(skb, f);
	f->unread = unread;
	if (f->returned == RETURNED_PUNTED) {
		f->mode = MODE_PEER;
		return leave(skb, f, why);
	}
	f->from = from;
	why = cross(f);
	if (why == CONTINUE)
		why = pass_nodes(skb, f);
	return leave(skb, f, why);
}
