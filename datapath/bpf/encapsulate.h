/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Into a tunnel, in programs of tc: the frame gets an outer header and goes to the uplink, whose other end is in the machine's namespace
 * (underlay_egress in underlay.c).
 *
 * Offloads stay: the kernel is told where the headers are, so that a super-frame remains one until the network card, which cuts it or
 * has it cut (GSO of GRE and UDP tunnels), and checksums that are still to be computed are inner ones as before.
 */
#pragma once

#include <linux/errno.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "header.h"
#include "link.h"
#include "outer.h"
#include "storm.h"
#include "tunnel.h"
#include "walk.h"

static __always_inline bool load_header(const struct __sk_buff *skb, const struct frame *f, struct header *h)
{
	__u64 n = header_length(f);

	if (copy_header(h, f, (void *)(long)skb->data, (void *)(long)skb->data_end))
		return true;
	return n && !bpf_skb_load_bytes(skb, 0, &h->eth, n);
}

/* VLAN tags that the kernel keeps beside the frame: at most MAX_TAGS, outermost first. */
struct tags {
	__u32 number;
	__be16 protocol[MAX_TAGS];
	__be16 tci[MAX_TAGS];
};

/* Tags would end up in the outer Ethernet header: they are taken off. */
static __always_inline enum reason take_tags(struct __sk_buff *skb, struct tags *t)
{
	for (int i = 0; i < MAX_TAGS; i++) {
		if (!skb->vlan_present)
			return CONTINUE;
		t->protocol[i] = skb->vlan_proto;
		t->tci[i] = bpf_htons(skb->vlan_tci);
		t->number = i + 1;
		if (bpf_skb_vlan_pop(skb)) /* moves the next tag beside the frame, too */
			return REASON_NO_MEMORY;
	}
	return skb->vlan_present ? REASON_VLAN_TAGS : CONTINUE;
}

/* Puts the inner Ethernet header to where it will be, tags in place. Returns its length. */
static __always_inline __u32 wrap_ethernet(__u8 *to, const struct header *h, const struct tags *t)
{
	struct tag *tag = (void *)(to + 2 * ETH_ALEN + sizeof(__be16));
	__be16 *type = (void *)(to + 2 * ETH_ALEN);

	__builtin_memcpy(to, h->eth.h_dest, 2 * ETH_ALEN);
	switch (t->number) {
	case 0:
		*type = h->eth.h_proto;
		return ETH_HLEN;
	case 1:
		*type = t->protocol[0];
		tag[0].tci = t->tci[0];
		tag[0].next = h->eth.h_proto;
		return ETH_HLEN + sizeof(*tag);
	default:
		*type = t->protocol[0];
		tag[0].tci = t->tci[0];
		tag[0].next = t->protocol[1];
		tag[1].tci = t->tci[1];
		tag[1].next = h->eth.h_proto;
		return ETH_HLEN + 2 * sizeof(*tag);
	}
}

/* How a frame comes to its tunnel. */
enum into {
	INTO_WALKED = 1, /* a walk has left a copy of its header */
	INTO_UNREAD = 2, /* link.h */
	INTO_HANDED = 4, /* past the device of the tunnel's port */
};

/* The copy of the frame's header that a walk has made, or one that is made now. */
static __always_inline const struct header *see_header(struct __sk_buff *skb, struct frame *f, bool walked)
{
	struct walk *w = begin();

	if (!w || walked)
		return w ? &w->header : NULL;
	f->length = skb->len; /* tags are off */
	return load_header(skb, f, &w->header) ? &w->header : NULL;
}

static __always_inline __u64 room_flags(const struct encapsulation *e, __u32 ethernet)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L2_ETH;

	flags |= e->v6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	flags |= e->kind == TUNNEL_VXLAN ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	return flags | BPF_F_ADJ_ROOM_ENCAP_L2(ethernet);
}

/*
 * Room before the frame. The kernel makes it, and takes note of what it is for, before IP packets alone. For others, for frames that it still
 * remembers to have come out of a tunnel, it is made as for any header, and the kernel looks at the packet anew where it comes out of the uplink. A
 * super-frame that came out of EGRE, put together by GRO, still has that kind: nothing but EGRE can take it again.
 */
static __always_inline enum reason make_room(struct __sk_buff *skb, struct frame *f, const struct encapsulation *e, __u32 ethernet)
{
	__u32 room = e->length + ethernet;
	long err = f->unread ? -EPROTO : bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, room_flags(e, ethernet));

	if (!err)
		return CONTINUE;
	if (f->segment && (err != -EALREADY || e->kind != TUNNEL_EGRE))
		return REASON_SUPER_FRAME;
	f->unread = true;
	return bpf_skb_change_head(skb, room, 0) ? REASON_NO_MEMORY : CONTINUE;
}

static __always_inline enum reason wrap(struct __sk_buff *skb, struct frame *f, const struct encapsulation *e, bool walked)
{
	struct tags t = {};
	__u32 inner, ethernet, n = e->length & OUTER_MASK;
	struct wrapping *w = find_wrapping();
	const struct header *h;
	enum reason why = take_tags(skb, &t);

	if (why != CONTINUE)
		return why;
	h = see_header(skb, f, walked && !t.number);
	if (!w || !h)
		return REASON_NO_MEMORY;
	inner = skb->len + t.number * sizeof(struct tag);
	write_outer(w, e, f, h, inner, t.number);
	ethernet = wrap_ethernet(w->bytes + n, h, &t);
	why = make_room(skb, f, e, ethernet);
	if (why != CONTINUE)
		return why;
	/* If the device gave a sum of the frame, it begins behind the first Ethernet header; but where that is thought to be all that
	 * stands before the inner packet, bpf_push_mac_rcsum() in the kernel adds it when the frame is sent. */
	if (bpf_skb_store_bytes(skb, 0, &w->eth, sizeof(w->eth), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(w->eth), w->bytes, n + ethernet, f->unread ? 0 : BPF_F_RECOMPUTE_CSUM))
		return REASON_NO_MEMORY;
	return CONTINUE;
}

/*
 * The frame, with all that routers did to it, goes into the tunnel that begins at the port where it has come to. A global function, as those of
 * lookups (walk.h).
 */
__noinline int into_tunnel(struct __sk_buff *skb, __u32 from, __u32 at, __u32 how)
{
	const struct encapsulation *e = bpf_map_lookup_elem(&encapsulations, &at);
	const struct uplink *u = find_uplink();
	enum reason why = REASON_NO_UPLINK;
	__u32 length = skb->len;
	struct frame f = {};

	f.length = length;
	f.segment = skb->gso_size;
	f.unread = !!(how & INTO_UNREAD);
	if (!e || e->kind == TUNNEL_NONE)
		why = REASON_UNKNOWN_TUNNEL;
	else if (is_storm(skb, &f, e, at))
		why = REASON_STORM;
	else if (u && u->inside)
		why = wrap(skb, &f, e, how & INTO_WALKED);
	if (why != CONTINUE || !u) {
		count_drop(from, why);
		return TC_ACT_SHOT;
	}
	count_sent(skb->len);
	if (how & INTO_HANDED)
		count_handed(at, length);
	return f.unread ? bpf_redirect(u->inside, 0) : bpf_redirect_peer(u->inside, 0);
}
