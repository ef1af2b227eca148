/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Handover: how a frame goes from XDP to tc after a packet program has changed it there. It cannot be left to the
 * kernel as it came (XDP_PASS) any more: programs of tc would call the packet program once more.
 *
 *	node_xdp, walk_on_xdp == redirect ==> veth pair ==> taken_over (port.c) == tail call ==> walk_on, node_tc
 *
 * The frame is as the last packet program left it. What tc is to do with it stands in the frame, as a stack of VLAN
 * tags of IEEE 802.1ad between its addresses and its type. These come off frames of any length and protocol
 * (bpf_skb_vlan_pop()), and the kernel sets its notes of the frame anew. The tags are the words of a struct handover,
 * in network byte order. Nothing but programs of XDP sends into that veth pair.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The device of the veth pair that takes frames from XDP, at 0. User space writes; without it, XDP calls no program. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} handovers SEC(".maps");

enum handover_kind {
	HANDOVER_ENTER = 1, /* enters the link of the port, as if its node had sent it */
	HANDOVER_PUNT,	    /* goes to the port's node, which is that of the packet program */
	HANDOVER_FLOOD,	    /* is copied to interfaces of the program's node */
	HANDOVER_SLOW,	    /* goes to the slow path of the node whose number is in the place of the port (slow.h) */
	HANDOVER_UDP,	    /* is a UDP packet of the slice in the place of the port; leaves by the uplink (node_udp.h) */
	HANDOVER_RUN,	    /* goes to the packet program of the node once more, as it came (node_flood.h) */
};

struct handover {
	__u16 port; /* MAX_PORTS fits */
	__u8 kind;  /* enum handover_kind */
	__u8 met;   /* how many packet programs the frame has met */
	__u16 queue; /* that the packet program chose */
	/* Of a flood, and of what is to run, alone. */
	__u16 number; /* of the node */
	union {
		__u16 flood[4]; /* interfaces: bit i % 16 of word i / 16 */
		struct {
			__u16 interface; /* by which it came */
			__u16 outer_port; /* host order; 0: it came in no UDP packet */
			__u8 outer_address[4];
		} run;
	};
};

#define HANDOVER_WORDS (sizeof(struct handover) / sizeof(__u16))
#define HANDOVER_SHORT (offsetof(struct handover, number) / sizeof(__u16)) /* of all others */

static __always_inline __u32 handover_words(__u8 kind)
{
	return kind == HANDOVER_FLOOD || kind == HANDOVER_RUN ? HANDOVER_WORDS : HANDOVER_SHORT;
}

struct handover_head {
	__u8 addresses[2 * ETH_ALEN];
	struct {
		__be16 protocol;
		__be16 word;
	} tags[HANDOVER_WORDS];
};

static __always_inline bool can_hand_over(void) { return bpf_redirect_map(&handovers, 0, XDP_PASS) == XDP_REDIRECT; }

/*
 * Returns the verdict, or XDP_ABORTED where there is no room for the tags, or no device. kind is known at compile time.
 */
static __always_inline int hand_over(struct xdp_md *ctx, const struct handover *h)
{
	const __u32 words = handover_words(h->kind), bytes = words * sizeof(((struct handover_head *)0)->tags[0]);
	const __u16 *word = (const __u16 *)h;
	struct handover_head head;

	if (bpf_xdp_load_bytes(ctx, 0, head.addresses, sizeof(head.addresses)))
		return XDP_ABORTED;
	for (__u32 i = 0; i < words; i++) {
		head.tags[i].protocol = bpf_htons(ETH_P_8021AD);
		head.tags[i].word = bpf_htons(word[i]);
	}
	if (bpf_xdp_adjust_head(ctx, -(int)bytes) ||
	    bpf_xdp_store_bytes(ctx, 0, &head, sizeof(head.addresses) + bytes))
		return XDP_ABORTED;
	return bpf_redirect_map(&handovers, 0, XDP_ABORTED);
}

/* Takes the next words off the frame. */
static __always_inline bool take_words(struct __sk_buff *skb, __u16 *words, __u32 n)
{
	for (__u32 i = 0; i < n; i++) {
		if (!skb->vlan_present || skb->vlan_proto != bpf_htons(ETH_P_8021AD))
			return false;
		words[i] = skb->vlan_tci;
		if (bpf_skb_vlan_pop(skb))
			return false;
	}
	return true;
}

static __always_inline bool take_handover(struct __sk_buff *skb, struct handover *h)
{
	__u16 *words = (__u16 *)h;

	if (!take_words(skb, words, HANDOVER_SHORT))
		return false;
	return handover_words(h->kind) == HANDOVER_SHORT ||
	       take_words(skb, words + HANDOVER_SHORT, HANDOVER_WORDS - HANDOVER_SHORT);
}
