/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The walk: what the nodes on a frame's way would do with it, one after the other, without waking any of them.
 *
 * It begins where a frame has crossed a link to a port whose node has a leg (fib.h), and ends
 *	- at a node that has none, or where a router's kernel has to see the frame (punt.h): the frame is handed to that
 *	  node, as the nodes before have changed it;
 *	- before a queue, or a bridge: they take it as the last node would have sent it (but for super-frames before a
 *	  queue or a slow policer: punt.h);
 *	- before a node that has a packet program, which is called with the frame as the last node would have sent it
 *	  (skb.h);
 *	- where a link leads nowhere, or its policer drops the frame, or a label does not lead on (reasons.h).
 *
 * A leg's kind says which code stands for its node: visit() chooses. A router that has labels looks at them first
 * (mpls.h), and may look again at what they leave. Nodes change the copy of the header, and settle()
 * makes an edit (edit.h) of it in the end. Of a router's, TTL and checksum are changed only then, for all routers at
 * once. (The kernel also derives skb->priority from the TOS, in ip_forward(); a veth pair clears it at the end of the
 * router's own link, so no receiver could tell.)
 *
 * This file does not know what kind of program it is in: that reads the copy, and carries the edit out.
 */
#pragma once

#include "count.h"
#include "fib.h"
#include "flow.h"
#include "frame.h"
#include "hop.h"
#include "impose.h"
#include "label_rule.h"
#include "label_stack.h"
#include "link.h"
#include "mpls.h"
#include "needs.h"
#include "punt.h"
#include "reasons.h"

/* The leg where the frame has come to. NULL: the node has none, or the link does not lead to a node. */
static __always_inline const struct leg *arrived(const struct frame *f)
{
	return f->mode == MODE_PEER ? find_leg(f->at) : NULL;
}

/* The leaf that a group has for this flow. */
static __always_inline __u32 choose(struct frame *f, __u32 group, __u32 router)
{
	if (!f->flow)
		f->flow = hash_flow(&f->header, f->length) | 1;
	return node_entry(ENTRY_INDEX(group), mix(f->flow + router));
}

static __always_inline union adjacency *find_shortcut(__u32 port, __be32 address)
{
	struct shortcut want = {.port = port, .address = address}, *s;
	__u32 place = want.neighbour * 0x9e3779b97f4a7c15 >> 48;

	s = bpf_map_lookup_elem(&shortcuts, &place);
	return s && *(volatile __u64 *)&s->neighbour == want.neighbour ? &s->to : NULL;
}

/* The neighbour that the frame goes to; NULL: not known. */
static __always_inline union adjacency *find_adjacency(struct nexthop *next, const struct frame *f)
{
	union adjacency *to;
	struct neighbour n = {};

	if (next->to.kind != NEXTHOP_LINK)
		return &next->to;
	if (f->family == LEG_IPV4) {
		to = find_shortcut(next->port, f->header.ip4.daddr);
		if (to)
			return to;
	}
	n.port = next->port;
	if (f->family == LEG_IPV4) {
		n.address[10] = n.address[11] = 0xff;
		__builtin_memcpy(&n.address[12], &f->header.ip4.daddr, 4);
	} else {
		__builtin_memcpy(n.address, &f->header.ip6.daddr, 16);
	}
	return bpf_map_lookup_elem(&neighbours, &n);
}

static __always_inline enum punt judge(__u8 kind)
{
	switch (kind) {
	case NEXTHOP_GATEWAY:
	case NEXTHOP_STALE:
		return WALK_ON;
	case NEXTHOP_NONE:
		return PUNT_NO_ROUTE;
	case NEXTHOP_UNRESOLVED:
		return PUNT_UNRESOLVED;
	case NEXTHOP_LOCAL:
		return PUNT_LOCAL;
	case NEXTHOP_REJECT:
		return PUNT_REJECT;
	case NEXTHOP_OTHER:
		return PUNT_ROUTE_KIND;
	}
	return PUNT_INCONSISTENT;
}

/* Send the frame out of the router, to the next hop. */
static __always_inline enum punt send(struct frame *f, __u32 router, struct nexthop *next)
{
	const __u64 fresh = (__u64)(NEXTHOP_GATEWAY - NEXTHOP_STALE) << 48; /* from the one kind to the other */
	union adjacency *to = find_adjacency(next, f), now;
	const struct leg *out;
	enum punt why;

	if (!to)
		return PUNT_UNRESOLVED;
	now.word = *(volatile __u64 *)&to->word;
	why = judge(now.kind);
	if (why != WALK_ON)
		return why;
	if (next->port == f->at)
		return PUNT_REDIRECT;
	out = find_leg(next->port);
	if (!out || out->router != router)
		return PUNT_INCONSISTENT;
	if (!(out->flags & LEG_UP))
		return PUNT_UNRESOLVED;
	if (f->packet > out->mtu)
		return PUNT_TOO_BIG;
	if (now.kind == NEXTHOP_STALE) {
		/*
		 * The kernel sees one frame, and then asks for its neighbour; frames behind it need not wait for
		 * that.
		 */
		if (!f->untraced)
			__sync_val_compare_and_swap(&to->word, now.word, now.word + fresh);
		return PUNT_STALE_NEIGHBOUR;
	}
	if (f->segment && takes_single(next->port))
		return PUNT_SUPER_FRAME;
	return depart(f, next->port, now.word, out);
}

/*
 * The verifier checks a global function once, by itself, and not again for each path that leads to it: lookups are
 * most of what there is to check. The first bit, 0, is an argument because the verifier would follow a number that it
 * knows through every turn of the loop, each by itself.
 */
__noinline __u32 find_entry4(__u32 root, __u32 destination, __u32 bit)
{
	return find_entry(root, (const __u8 *)&destination, 4, bit);
}

__noinline __u32 find_entry6(__u32 root, __u64 first, __u64 second, __u32 bit)
{
	__u64 destination[] = {first, second};

	return find_entry(root, (const __u8 *)destination, 16, bit);
}

/* What a router has for the destination: 0 if it is not on the fast path, or if there is no route. */
static __always_inline __u32 look_up(__u32 root, const struct header *h)
{
	const __u64 *to6 = (const void *)&h->ip6.daddr;

	return is_ip4(h) ? find_entry4(root, h->ip4.daddr, 0) : find_entry6(root, to6[0], to6[1], 0);
}

/*
 * What a router does with a frame that came to its interface. The route is looked up before anything else, and needed
 * last: in a large table it is in no cache, and what is done meanwhile costs nothing.
 */
static __always_inline enum punt forward(struct frame *f, const struct leg *in)
{
	const struct router *r = bpf_map_lookup_elem(&routers, &in->router);
	const struct header *h = &f->header;
	__u32 root, entry, index, ftn;
	struct nexthop *next;

	if (!r)
		return PUNT_INCONSISTENT;
	root = is_ip4(h) ? r->root4 : r->root6;
	entry = look_up(root, h);
	if (f->refused == UNEXAMINED)
		examine(f, r);
	if (f->refused == PUNT_NOT_IP)
		return f->refused;
	if (!same_mac(h->eth.h_dest, in->mac))
		return h->eth.h_dest[0] & 1 ? PUNT_LOCAL : PUNT_OTHER_STATION;
	if (!root || !(in->flags & LEG_UP) || !(in->flags & f->family))
		return PUNT_INELIGIBLE;
	if (f->refused)
		return f->refused;
	if (f->source && (f->source == in->router || f->source == MANY))
		return PUNT_SOURCE;
	if (ttl(h) <= f->hops + 1 && (!with_mpls || ttl(h) <= unpaid_hops(f) + 1))
		return PUNT_TTL;
	if (ENTRY_TYPE(entry) == ENTRY_GROUP)
		entry = choose(f, entry, in->router);
	if (ENTRY_TYPE(entry) != ENTRY_LEAF)
		return PUNT_INCONSISTENT;
	index = ENTRY_INDEX(entry);
	next = bpf_map_lookup_elem(&nexthops, &index);
	if (!next)
		return PUNT_INCONSISTENT;
	if (with_mpls) {
		ftn = choose_ftn(f, in, r->space, next);
		if (ftn)
			return impose_labels(f, ftn);
	}
	return send(f, in->router, next);
}

/* What the leg's node does with the frame. */
static __always_inline enum punt visit(struct frame *f, const struct leg *in)
{
	switch (in->kind) {
	case LEG_ROUTER:
		if (with_mpls && is_labelled(f))
			return switch_label(f, in);
		return forward(f, in);
	case LEG_PROGRAM:
		if (!with_programs)
			return PUNT_INELIGIBLE;
		f->interface = in->mtu;
		return TO_PROGRAM;
	default: /* a newer agent's */
		return PUNT_INELIGIBLE;
	}
}

/* A hop puts on at most so many labels, each of which may take a step of its own to come off. */
#define MAX_STEPS (with_mpls ? (MAX_HOPS + 1) * (1 + MAX_PUSHES) + MAX_LABELS : MAX_HOPS + 1)

/* What bpf_loop() hands to its callback has to be on the stack. */
struct turn {
	struct frame *f;
};

/* One node, and the link behind it. Returns 1 where the walk ends. */
static long step(__u32 number __attribute__((unused)), struct turn *t)
{
	struct frame *f = t->f;
	const struct leg *in = find_leg(f->at);

	if (!in)
		return 1;
	f->router = in->router;
	f->why = visit(f, in);
	if (with_mpls && f->why == AGAIN)
		return 0;
	if (f->why != WALK_ON)
		return 1;
	f->drop = cross(f);
	return f->drop != CONTINUE || f->mode != MODE_PEER;
}

/* What has been left until now is written into the copy, and the edit describes it. */
static __always_inline void settle(struct frame *f)
{
	if (with_mpls && settle_labels(f))
		return;
	if (!f->hops)
		return;
	age(&f->header, f->hops);
	f->edit.takes = HOP_HEAD;
	f->edit.puts = HOP_HEAD;
	f->edit.sum = is_ip4(&f->header) ? 0 : ~(__u32)bpf_htons(f->hops);
}

/* Walks on from the leg where the frame is; its header has been read. */
static __always_inline enum reason walk(struct frame *f)
{
	struct turn t = {.f = f};

	f->copied = true;
	f->flow = 0;
	f->refused = UNEXAMINED;
	f->source = 0;
	f->packet = 0;
	f->drop = CONTINUE;
	if (with_mpls)
		begin_labels();
	bpf_loop(MAX_STEPS, step, &t, 0);
	settle(f);
	return f->drop;
}

static long count_pass(__u32 i, struct turn *t)
{
	const struct frame *f = t->f;

	if (i < MAX_HOPS) {
		count_walked_in(f->passed[i].in, f->length);
		count_walked_out(f->passed[i].out, f->length);
	}
	return 0;
}

/* Counts the walk, once it is certain that it takes place. */
static __always_inline void account(struct frame *f)
{
	struct turn t = {.f = f};

	if (f->hops == 1)
		count_pass(0, &t); /* without the call of a loop */
	else if (f->hops)
		bpf_loop(f->hops, count_pass, &t, 0);
	if (f->why != WALK_ON)
		count_punt(f->router, f->why);
}
