/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What nodes send, their packet programs included. The traffic class of reservations says that a router has measured
 * the frame (reserve.h), and by it the frame goes first at network cards (early.h), on this host and on others. A
 * node's word for that counts for nothing: the class is taken off all labels that it sends.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "label_entry.h"
#include "node.h"
#include "ports.h"
#include "reasons.h"
#include "reserve.h"

#define MAX_SENT_LABELS 64 /* that are looked at. Routers of one host take off a few */

/* The entry without the class, and true if it had it. */
static __always_inline bool without_class(__be32 *entry)
{
	__u32 e = bpf_ntohl(*entry);

	if (CLASS_OF(e) != RESERVED_CLASS)
		return false;
	*entry = bpf_htonl(e & ~ENTRY_TC);
	return true;
}

struct sent_labels {
	struct __sk_buff *skb;
	__u32 failed;
};

/* One label. Returns 1 where there is nothing more to do. */
static long take_off_one(__u32 i, struct sent_labels *l)
{
	const __u32 at = ETH_HLEN + i * sizeof(__be32);
	__be32 entry;

	if (i >= MAX_SENT_LABELS || bpf_skb_load_bytes(l->skb, at, &entry, sizeof(entry)))
		return 1;
	if (without_class(&entry) && bpf_skb_store_bytes(l->skb, at, &entry, sizeof(entry), BPF_F_RECOMPUTE_CSUM))
		l->failed = true;
	return l->failed || bpf_ntohl(entry) & ENTRY_BOTTOM;
}

/* Takes the class off all labels of a frame, if it has any. Returns an enum reason. */
__noinline int take_off_class(struct __sk_buff *skb)
{
	struct sent_labels l = {.skb = skb};
	__be16 protocol;

	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) ||
	    protocol != bpf_htons(ETH_P_MPLS_UC))
		return CONTINUE;
	bpf_loop(MAX_SENT_LABELS, take_off_one, &l, 0);
	return l.failed ? REASON_NO_MEMORY : CONTINUE;
}

struct sent_labels_xdp {
	struct xdp_md *ctx;
	__u32 failed;
};

static long take_off_one_xdp(__u32 i, struct sent_labels_xdp *l)
{
	const __u32 at = ETH_HLEN + i * sizeof(__be32);
	__be32 entry;

	if (i >= MAX_SENT_LABELS || bpf_xdp_load_bytes(l->ctx, at, &entry, sizeof(entry)))
		return 1;
	if (without_class(&entry) && bpf_xdp_store_bytes(l->ctx, at, &entry, sizeof(entry)))
		l->failed = true;
	return l->failed || bpf_ntohl(entry) & ENTRY_BOTTOM;
}

/* In XDP. Returns false where it cannot be done. */
static __always_inline bool take_off_class_xdp(struct xdp_md *ctx)
{
	const struct ethhdr *eth = (void *)(long)ctx->data;
	struct sent_labels_xdp l = {.ctx = ctx};

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || eth->h_proto != bpf_htons(ETH_P_MPLS_UC))
		return true;
	bpf_loop(MAX_SENT_LABELS, take_off_one_xdp, &l, 0);
	return !l.failed;
}

/* Has a node sent the frame, which enters at its port? Else routers of the walk have, or it comes from outside. */
static __always_inline bool is_sent_by_node(const struct __sk_buff *skb, const struct frame *f)
{
	const struct port *p = find_port(f->from);

	if (!p || p->external || !(*(const __u32 *)p->mac | *(const __u16 *)(p->mac + 4)))
		return false;
	return !by_routers(skb);
}

static __always_inline enum reason believe_no_class(struct __sk_buff *skb, const struct frame *f)
{
	if (skb->protocol != bpf_htons(ETH_P_MPLS_UC) || !is_sent_by_node(skb, f))
		return CONTINUE;
	return take_off_class(skb);
}

/* The same for what a packet program sends, which may have written another EtherType. */
static __always_inline enum reason believe_no_program(struct __sk_buff *skb)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	if ((void *)(eth + 1) <= (void *)(long)skb->data_end && eth->h_proto != bpf_htons(ETH_P_MPLS_UC))
		return CONTINUE;
	return take_off_class(skb);
}
