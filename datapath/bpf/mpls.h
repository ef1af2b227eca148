/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Label switching (RFC 3031, 3032, 3443): what a router of the walk does with a frame that carries labels.
 * Tables (label_table.h) are written by user space (datapath/mpls.go); no kernel's are mirrored.
 * docs/decisions/028-mpls-on-the-walk.md has the reasons.
 *
 *	(label space, label) -> NHLFE: labels off, labels on, next hop	the incoming label map
 *	next hop of a route -> NHLFE					the FTN: which frames get labels
 *
 * What it does with the frame's stack is in label_stack.h; frames that get their first labels are in impose.h.
 * The functions are global ones: the verifier checks each once, and IP's way has nothing of it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "fib.h"
#include "frame.h"
#include "header.h"
#include "hop.h"
#include "label_stack.h"
#include "label_table.h"
#include "needs.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"
#include "reserve.h"

/*
 * Takes the top label off for good. What was below it comes to light, with the TTL that is its own now: in the uniform
 * model that of the label, but never a greater one, since there are LSPs of one model in those of the other (RFC 3443,
 * 3.6). spent: 1 where the frame then leaves the router, which is a hop of the header that has come to light; 0 where
 * the router looks again, and counts the hop then.
 */
static __always_inline enum reason take_off(struct frame *f, struct label_stack *s, __u32 entry, bool uniform,
					    __u32 spent)
{
	__u32 label = ENTRY_LABEL(entry), bottom = entry & ENTRY_BOTTOM, have, want;

	pop_top(f, s, entry);
	if (bottom && !expose_ip(f, s))
		return REASON_LABEL_STACK;
	if (bottom && label < FIRST_LABEL && is_ip4(&f->header) != (label == LABEL_IPV4_NULL))
		return REASON_LABEL_STACK;
	have = ttl_on_top(f, s);
	if (have > 255)
		return REASON_LABEL_STACK;
	want = uniform ? ENTRY_TTL(entry) : have;
	if (spent && want <= 1)
		return REASON_LABEL_TTL;
	want -= spent;
	if (bottom)
		f->refused = UNEXAMINED;
	return want < have ? lower_top(f, s, have, want) : CONTINUE;
}

/* The leg of the port by which an LSP leaves the router; NULL: it is not there, or down. */
static __always_inline const struct leg *find_way(const struct nhlfe *n, __u32 router)
{
	__u32 port = n->port;
	const struct leg *out = find_leg(port);

	return out && out->router == router && out->flags & LEG_UP ? out : NULL;
}

static __always_inline enum reason leave_router(struct frame *f, struct label_stack *s, const struct nhlfe *n,
						const struct leg *out)
{
	if (f->packet > out->mtu) {
		s->room = out->mtu - (f->packet - s->arrived);
		return REASON_TOO_BIG;
	}
	if (depart(f, n->port, *(const word *)n->mac, out) != WALK_ON)
		return REASON_LABEL_LOOP;
	s->aged = f->hops;
	return CONTINUE;
}

/* Is a frame with this entry on top, which goes by an LSP, within what that has reserved? */
static __always_inline bool is_reserved(const struct nhlfe *n, __u32 entry)
{
	return (n->flags & (LABEL_RESERVED | LABEL_BYPASS)) == LABEL_RESERVED &&
	       (entry & ENTRY_TC) == RESERVED_CLASS << 9;
}

static __always_inline enum punt drop_labelled(struct frame *f, enum reason why)
{
	f->drop = why;
	return DROPPED;
}

/* What becomes of a frame with this label on top. CONTINUE: it has left the router, or is to be looked at again. */
static __always_inline enum reason switch_by(struct frame *f, struct label_stack *s, const struct nhlfe *n,
					     __u32 router, __u32 entry)
{
	bool sends = n->operation == LABEL_SWITCH, uniform = n->flags & LABEL_UNIFORM;
	const struct leg *out = NULL;
	enum reason why = CONTINUE;
	__u32 left = ENTRY_TTL(entry) - 1;

	if (sends) {
		if (ENTRY_TTL(entry) <= 1)
			return REASON_LABEL_TTL;
		out = find_way(n, router);
		if (!out)
			return REASON_LSP_DOWN;
	} else if (n->operation != LABEL_POP) { /* a newer agent's */
		return REASON_UNKNOWN_LABEL;
	}
	if (n->pushes == 1) {
		swap_top(s, n, entry, left);
	} else if (n->pushes) {
		pop_top(f, s, entry);
		if (!push_all(f, s, n, entry, left, uniform ? left : n->ttl))
			return REASON_LABEL_STACK;
	} else {
		why = take_off(f, s, entry, uniform, sends);
	}
	if (why != CONTINUE || !out)
		return why;
	why = leave_router(f, s, n, out);
	f->reserved = is_reserved(n, entry);
	return why;
}

/* The frame has come to a router's leg with labels. Returns an enum punt. */
__noinline int switch_label(struct frame *f, const struct leg *in)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	const struct router *r;
	const struct nhlfe *n;
	enum reason why;
	__u32 router, label;
	__u64 top;

	if (!f || !in || !s || f->tagged)
		return PUNT_NOT_IP;
	router = in->router; /* on the stack, where Linux 6.1 wants keys to be */
	r = bpf_map_lookup_elem(&routers, &router);
	if (!r || !r->space || !(in->flags & LEG_UP))
		return PUNT_NOT_IP;
	if (!same_mac(f->header.eth.h_dest, in->mac))
		return f->header.eth.h_dest[0] & 1 ? PUNT_LOCAL : PUNT_OTHER_STATION;
	if (!s->used) {
		if (f->segment)
			return drop_labelled(f, REASON_SUPER_FRAME);
		begin_stack(s, true);
		f->packet = f->length - ETH_HLEN;
	}
	if (f->why != AGAIN) {
		s->came = s->is;
		s->arrived = f->packet;
	}
	top = read_top(f, s);
	if (top == NO_ENTRY)
		return drop_labelled(f, REASON_LABEL_STACK);
	label = ENTRY_LABEL(top);
	if (label == LABEL_ROUTER_ALERT)
		return drop_labelled(f, REASON_ROUTER_ALERT);
	n = find_nhlfe(r->space, label);
	if (!n || (n->in && n->in != f->at))
		return drop_labelled(f, REASON_UNKNOWN_LABEL);
	why = switch_by(f, s, n, router, top);
	if (why != CONTINUE)
		return drop_labelled(f, why);
	return n->operation == LABEL_SWITCH ? WALK_ON : AGAIN;
}
