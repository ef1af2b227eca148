/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs of tc do with a frame, from where it enters a link to where it leaves the data path.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "class.h"
#include "count.h"
#include "encapsulate.h"
#include "link.h"
#include "needs.h"
#include "node.h"
#include "reasons.h"
#include "sent.h"
#include "shrink.h"
#include "unfinished.h"
#include "unwalked.h"
#include "walk.h"

#define BY_FRAGS 0xffff /* GSO_BY_FRAGS in the kernel: SCTP's super-frames, of packets that it has made already */

/* The byte that says how long the header above IP is; 0 where it cannot be read. */
static __always_inline __u8 offset_of_tcp(const struct __sk_buff *skb, __u32 at)
{
	__u8 offset = 0;

	bpf_skb_load_bytes(skb, at + offsetof(struct ports_and_offset, offset), &offset, sizeof(offset));
	return offset;
}

/*
 * The longest frame that this one stands for: if it is a super-frame, as skb_gso_network_seglen() in the kernel has
 * it. What is between the headers of IP and TCP or UDP, and what is in front of them, is not read, as in
 * packet_length() (header.h), but here it is left out: nothing is dropped that fits.
 */
__noinline int longest_frame(struct __sk_buff *skb)
{
	__u32 headers = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr);
	struct {
		__u8 align[2]; /* as in struct header */
		struct ethhdr eth;
		struct iphdr ip4;
	} h = {};
	__u32 above;
	__u8 next;

	if (!skb->gso_size)
		return skb->len;
	if (skb->gso_size == BY_FRAGS || bpf_skb_load_bytes(skb, 0, &h.eth, sizeof(h.eth) + sizeof(h.ip4)))
		return 0;
	if (h.eth.h_proto == bpf_htons(ETH_P_IP)) {
		above = ETH_HLEN + h.ip4.ihl * 4;
		next = h.ip4.protocol;
	} else if (h.eth.h_proto == bpf_htons(ETH_P_IPV6)) {
		above = ETH_HLEN + sizeof(struct ipv6hdr);
		next = *((const __u8 *)&h.ip4 + offsetof(struct ipv6hdr, nexthdr));
	} else {
		return headers + skb->gso_size;
	}
	headers = above + (next == IPPROTO_TCP ? (offset_of_tcp(skb, above) >> 4) * 4 : sizeof(struct udphdr));
	return headers + skb->gso_size < skb->len ? headers + skb->gso_size : skb->len;
}

static __always_inline void init_frame(struct __sk_buff *skb, struct frame *f)
{
	clear_frame(f, false);
	f->length = skb->len;
	f->segment = skb->gso_size;
	f->longest = longest_frame(skb);
	f->tagged = skb->vlan_present;
	f->from = skb->ifindex;
}

/* Walks on, if the frame has come to a leg. */
static __always_inline enum reason pass_nodes(struct __sk_buff *skb, struct frame *f)
{
	if (!arrived(f) || !load_header(skb, &f->header, f->length))
		return CONTINUE;
	return walk(f);
}

/*
 * Room for a head that is longer or shorter than the one that it takes the place of: of a frame that gets labels, or
 * loses them. If the device gave a sum of the frame (CHECKSUM_COMPLETE), it would be wrong afterwards, as in
 * move_start() (program_skb.h). The kernel then takes the frame for what it was: a device has to read it again. Returns
 * an enum reason.
 */
__noinline int make_head_room(struct __sk_buff *skb, struct frame *f)
{
	__s32 less;

	if (!with_mpls || !f)
		return REASON_NO_MEMORY;
	less = (__s32)f->edit.takes - f->edit.puts;
	f->unread = true;
	if (bpf_csum_update(skb, 0) >= 0)
		return REASON_CHECKSUM;
	if (less < 0)
		return bpf_skb_change_head(skb, -less, 0) ? REASON_NO_MEMORY : CONTINUE;
	return cut_front(skb, less, skb->len) ? CONTINUE : REASON_NO_MEMORY;
}

/*
 * Carries the edit out. If the device gave a sum of the frame (CHECKSUM_COMPLETE), that begins at the network header
 * here (bpf_push_mac_rcsum() in the kernel adds the Ethernet header when the frame is sent), so new MAC addresses do
 * not change it: no BPF_F_RECOMPUTE_CSUM. What else changes it, the edit says.
 *
 * Outer headers are no matter of this function: they come off and are put on where the kernel can be told what they are
 * (underlay.c, encapsulate.h).
 */
static __always_inline enum reason write_edit(struct __sk_buff *skb, struct frame *f)
{
	enum reason why;
	__u64 n;

	if (with_mpls && f->edit.takes != f->edit.puts) {
		why = make_head_room(skb, f);
		if (why != CONTINUE)
			return why;
	}
	n = f->edit.puts & HEAD_MASK;
	asm volatile("" : "+r"(n)); /* as header_length() */
	if (n < ETH_HLEN)
		return CONTINUE;
	if (bpf_skb_store_bytes(skb, 0, &f->header.eth, n, 0))
		return REASON_NO_MEMORY;
	if (f->edit.sum)
		bpf_csum_update(skb, f->edit.sum); /* refuses where there is no such sum */
	return CONTINUE;
}

/* Is it for the node's interface, by the address of which we know? */
static __always_inline bool for_node(const __u8 *destination, __u32 port)
{
	const struct leg *l = find_leg(port);
	const struct port *p;

	if (l)
		return same_mac(destination, l->mac);
	p = find_port(port);
	return p && !p->external && same_mac(destination, p->mac);
}

/*
 * May the frame be handed to the node at once? What the receiver does with it depends on skb->pkt_type, which the
 * kernel set for the port's own address, and which bpf_redirect_peer() leaves so before Linux 6.15 and since then
 * resets to PACKET_HOST. So only frames for the node's address are handed over. All others (broadcast, multicast,
 * other stations', also after the node changed its address) go through the port's device, where the kernel sets it
 * anew.
 */
static __always_inline bool direct(struct __sk_buff *skb, const struct frame *f)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	if (f->unread || (void *)(eth + 1) > (void *)(long)skb->data_end || !for_node(eth->h_dest, f->at))
		return false;
	return bpf_skb_change_type(skb, PACKET_HOST) == 0;
}

/*
 * Calls the packet program of the node where the frame has come to, and does not come back. A super-frame first goes
 * round by the device that makes single frames of it, if there is one; else the program refuses it. The same device
 * finishes checksums. What comes from there has no such device before it, so it goes there once.
 */
static __always_inline int call_program(struct __sk_buff *skb, const struct frame *f)
{
	const struct port *p = f->segment || has_unfinished_sum(skb) ? find_port(f->from) : NULL;

	if (p && p->plain)
		return bpf_redirect(p->plain, 0);
	bpf_tail_call(skb, &node_programs, f->router);
	count_drop(f->from, REASON_NO_PROGRAM);
	return TC_ACT_SHOT;
}

static long give_back_pass(__u32 i, struct turn *t)
{
	if (i < MAX_HOPS)
		give_back(t->f, t->f->passed[i].out);
	return 0;
}

/*
 * A super-frame that would leave with labels on, or get them before a queue, goes round by the device that makes single
 * frames of it, if there is one before the router where it came in; else it is dropped. The kernel cuts behind labels
 * only where it has MPLS.
 * (One that has got labels and lost them again on its way is like any other.) Behind the device, the frames come to all
 * policers but the first again, and to the meters of all LSPs, of which the last gives back what it took. What is given
 * back to policers is more than was taken by labels that were not on yet.
 */
__noinline int cut_before_labels(struct frame *f)
{
	const struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	__u32 plain;

	if (!f || !s)
		return TC_ACT_SHOT;
	plain = plain_before(f);
	if (plain) {
		struct turn t = {.f = f};

		if (with_policers)
			bpf_loop(f->hops, give_back_pass, &t, 0);
		if (s->used && s->measured)
			forget_measure(s->measured, s->within, s->frames, s->bytes);
		return bpf_redirect(plain, 0);
	}
	count_drop(f->from, REASON_SUPER_FRAME);
	return TC_ACT_SHOT;
}

/* Is it a super-frame that routers have refused, or cannot leave so, and that came without labels? */
static __always_inline bool ends_cut(const struct frame *f, enum reason why)
{
	if (why == CONTINUE)
		return f->edit.takes != f->edit.puts;
	return why == REASON_SUPER_FRAME && f->why == DROPPED && !is_labelled(f);
}

/* The one exit. A frame that is to wait gets its class when its header is what the last node would have sent. */
static __always_inline int leave(struct __sk_buff *skb, struct frame *f, enum reason why)
{
	if (with_mpls) { /* one look at the constant: hosts without labels have nothing of what is here */
		if (f->segment && ends_cut(f, why))
			return cut_before_labels(f);
		if (why != CONTINUE)
			tell_agent(skb, f, why);
	}
	account(f);
	if (why == CONTINUE)
		why = write_edit(skb, f);
	if (why != CONTINUE) {
		count_drop(f->from, why);
		return TC_ACT_SHOT;
	}
	if (with_programs && f->why == TO_PROGRAM) {
		if (with_mpls && f->edit.puts > f->edit.takes) { /* as send_by() (node_out.h) */
			give_back(f, f->from);
			skb->mark = MARK_OURS | MARK_ROUTERS | programs_met(skb); /* as below */
			return bpf_redirect(f->from, BPF_F_INGRESS);
		}
		return call_program(skb, f);
	}
	if (with_queues && f->mode == MODE_QUEUE)
		classify(skb, f->from, f->queue, with_mpls && f->reserved);
	switch (f->mode) {
	case MODE_KERNEL: /* the bridge takes frames that came in at the port: this one did, or is to look so */
		if (f->from == skb->ifindex)
			return TC_ACT_OK;
		skb->mark = MARK_OURS | MARK_ROUTERS | programs_met(skb);
		return bpf_redirect(f->from, BPF_F_INGRESS);
	case MODE_TUNNEL:
		return into_tunnel(skb, f, false);
	case MODE_PEER:
		if (f->external && begins_tunnel(f->at))
			return into_tunnel(skb, f, true);
		if (direct(skb, f)) {
			count_handed(f->at, f->length);
			if (with_programs)
				skb->mark = 0; /* as on the way through the device */
			return bpf_redirect_peer(f->at, 0);
		}
		break;
	default:
		break;
	}
	return bpf_redirect(f->at, 0);
}
