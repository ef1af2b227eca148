/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Into a tunnel, in programs of tc: the frame gets an outer header and goes to the uplink, whose other end is in the
 * machine's namespace (underlay_egress in underlay.c).
 *
 * Offloads stay: the kernel is told where the headers are, so that a super-frame remains one until the network card,
 * which cuts it or has it cut (GSO of GRE and UDP tunnels), and checksums that are still to be computed are inner
 * ones as before.
 */
#pragma once

#include <linux/errno.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "frame.h"
#include "node.h"
#include "outer.h"
#include "storm.h"
#include "tunnel.h"

/* Tags would end up in the outer Ethernet header: they are taken off. Returns an enum reason. */
__noinline int take_tags(struct __sk_buff *skb, struct frame *f)
{
	if (!with_tunnels || !f)
		return REASON_NO_MEMORY;
	for (int i = 0; i < MAX_TAGS; i++) {
		if (!skb->vlan_present)
			return CONTINUE;
		f->tags.protocol[i] = skb->vlan_proto;
		f->tags.tci[i] = bpf_htons(skb->vlan_tci);
		f->tags.number = i + 1;
		if (bpf_skb_vlan_pop(skb)) /* moves the next tag beside the frame, too */
			return REASON_NO_MEMORY;
	}
	return skb->vlan_present ? REASON_VLAN_TAGS : CONTINUE;
}

/* Puts the inner Ethernet header to where it will be, with the tags. Returns its length. */
static __always_inline __u32 wrap_ethernet(__u8 *to, const struct header *h, const struct tags *t)
{
	struct tag *tag = (void *)(to + 2 * ETH_ALEN + sizeof(__be16));
	__be16 *type = (void *)(to + 2 * ETH_ALEN);
	__u32 number = t->number;

	__builtin_memcpy(to, h->eth.h_dest, 2 * ETH_ALEN);
	*type = number ? t->protocol[0] : h->eth.h_proto;
	tag[0].tci = t->tci[0];
	tag[0].next = number > 1 ? t->protocol[1] : h->eth.h_proto;
	tag[1].tci = t->tci[1];
	tag[1].next = h->eth.h_proto;
	return ETH_HLEN + (number & 3) * sizeof(*tag);
}

/* The copy of the frame's header that a walk has left, unless it has tags; or one that is made now. */
static __always_inline bool require_header(struct __sk_buff *skb, struct frame *f)
{
	if (f->copied && !f->tags.number)
		return true;
	f->length = skb->len; /* tags are off */
	return load_header(skb, &f->header, f->length);
}

static __always_inline __u64 room_flags(const struct encapsulation *e, __u32 ethernet)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L2_ETH;

	flags |= is_outer_ip6(e) ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	flags |= e->kind == TUNNEL_VXLAN ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	return flags | BPF_F_ADJ_ROOM_ENCAP_L2(ethernet);
}

/*
 * Room before the frame. The kernel makes it, and takes note of what it is for, before IP packets alone. For others,
 * and for frames that it still remembers to have come out of a tunnel, it is made as for any header, and the kernel
 * reads the packet anew where it comes out of the uplink. A super-frame that came out of EGRE, put together by GRO,
 * still has that kind: nothing but EGRE can take it again.
 */
static __always_inline enum reason make_room(struct __sk_buff *skb, struct frame *f, const struct encapsulation *e,
					     __u32 ethernet)
{
	__u32 room = e->length + ethernet;
	long err = -EPROTO;

	if (!f->unread)
		err = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, room_flags(e, ethernet));
	if (!err)
		return CONTINUE;
	if (f->segment && (err != -EALREADY || e->kind != TUNNEL_EGRE))
		return REASON_SUPER_FRAME;
	f->unread = true;
	return bpf_skb_change_head(skb, room, 0) ? REASON_NO_MEMORY : CONTINUE;
}

static __always_inline enum reason wrap(struct __sk_buff *skb, struct frame *f, const struct encapsulation *e, __u32 at)
{
	struct wrapping *w = &f->outer;
	enum reason why = take_tags(skb, f);
	__u32 ethernet, n;

	if (why != CONTINUE)
		return why;
	if (!require_header(skb, f))
		return REASON_NO_MEMORY;
	n = write_outer(f, at, skb->len + f->tags.number * sizeof(struct tag)) & OUTER_MASK;
	ethernet = wrap_ethernet(w->bytes + n, &f->header, &f->tags);
	why = make_room(skb, f, e, ethernet);
	if (why != CONTINUE)
		return why;
	/*
	 * If the device gave a sum of the frame, it begins behind the first Ethernet header; but where that is
	 * thought to be all that stands before the inner packet, bpf_push_mac_rcsum() in the kernel adds it when the
	 * frame is sent.
	 */
	if (bpf_skb_store_bytes(skb, 0, &w->eth, sizeof(w->eth), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(w->eth), w->bytes, n + ethernet, f->unread ? 0 : BPF_F_RECOMPUTE_CSUM))
		return REASON_NO_MEMORY;
	return CONTINUE;
}

/*
 * The frame, as nodes on its way have changed it, goes into the tunnel that begins at the port where it has come to.
 * handed: past that port's device. A global function, as those of lookups (walk.h).
 */
__noinline int into_tunnel(struct __sk_buff *skb, struct frame *f, __u32 handed)
{
	const struct uplink *u = find_uplink();
	enum reason why = REASON_NO_UPLINK;
	const struct encapsulation *e;
	__u32 length = skb->len, at;

	if (!with_tunnels || !f)
		return TC_ACT_SHOT;
	at = f->at;
	e = bpf_map_lookup_elem(&encapsulations, &at);
	f->length = length;
	if (with_met)
		f->met = programs_met(skb);
	if (!e || e->kind == TUNNEL_NONE)
		why = REASON_UNKNOWN_TUNNEL;
	else if (is_storm(skb, f, e, at))
		why = REASON_STORM;
	else if (u && u->inside)
		why = wrap(skb, f, e, at);
	if (why != CONTINUE || !u) {
		count_drop(f->from, why);
		return TC_ACT_SHOT;
	}
	count_sent(skb->len);
	if (handed)
		count_handed(at, length);
	if (waits_at_card(u)) {
		skb->priority = card_class(e->key >> TUNNEL_BITS);
		return bpf_redirect(u->inside, 0);
	}
	return f->unread ? bpf_redirect(u->inside, 0) : bpf_redirect_peer(u->inside, 0);
}
