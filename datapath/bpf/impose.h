/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where an LSP begins (RFC 3031, 3.11): a frame gets its first labels, by its route (walk.h) or a rule (label_rule.h),
 * and goes on as label_stack.h and mpls.h have it.
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
#include "mpls.h"
#include "needs.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"
#include "reserve.h"

/*
 * The traffic class that labels have over IP: its precedence (RFC 3270, 4.1 has no other default for E-LSPs). But that
 * of reservations says that a frame was measured, and IP does not say so: that precedence gets the class below.
 */
static __always_inline __u32 class_of_ip(const struct header *h)
{
	__u8 precedence = is_ip4(h) ? h->ip4.tos >> 5 : h->ip6.priority >> 1;

	return (__u32)(precedence == RESERVED_CLASS ? RESERVED_CLASS - 1 : precedence) << 9;
}

/*
 * The device that makes single frames of super-frames before the router where the frame came in; 0: there is none. At
 * its far end they enter the link to that router again.
 */
static __always_inline __u32 plain_before(const struct frame *f)
{
	const struct port *in = find_port(f->hops ? f->passed[0].in : f->at), *from = in ? find_port(in->peer) : NULL;

	return from ? from->plain : 0;
}

/*
 * Which traffic class does the frame, which is about to get so many bytes longer, get by its reservation, in an entry
 * of labels? NO_ENTRY: it is dropped. Programs of XDP do not measure, for the frame may be left to those of tc, which
 * do.
 */
static __always_inline __u64 class_by_reservation(struct frame *f, struct label_stack *s, __u32 space, __u32 ftn,
						  __u32 more)
{
	int is;

	if (f->untraced)
		return NO_ENTRY;
	end_measure(s);
	s->measured = (__u64)space << 32 | FTN | ftn;
	s->frames = frames_of(f);
	s->bytes = reserved_bytes(f, more);
	is = measure(f, s->measured, more);
	if (is == MEASURED_BY_NOBODY)
		s->measured = 0;
	else
		s->began = begin_sample();
	s->within = is == MEASURED_WITHIN;
	if (is == MEASURED_DROPPED)
		return NO_ENTRY;
	return s->within ? RESERVED_CLASS << 9 : 0;
}

/*
 * The next hop of the frame's route has an FTN: it gets labels, and goes the way of these. Returns an enum punt. What
 * is punted here is still plain IP, and the router's kernel forwards it so.
 */
__noinline int impose_labels(struct frame *f, __u32 ftn)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	const struct router *r;
	const struct nhlfe *n;
	const struct leg *in, *out;
	__u32 at, router, below, first;
	__u64 class;

	if (!f || !s)
		return PUNT_INCONSISTENT;
	at = f->at;
	in = find_leg(at);
	if (!in)
		return PUNT_INCONSISTENT;
	router = in->router;
	r = bpf_map_lookup_elem(&routers, &router);
	if (!r)
		return PUNT_INCONSISTENT;
	n = find_nhlfe(r->space, FTN | ftn);
	if (!n || n->operation != LABEL_SWITCH || !n->pushes)
		return PUNT_INCONSISTENT;
	out = find_way(n, router);
	if (!out)
		return PUNT_UNRESOLVED;
	if (f->packet + n->pushes * sizeof(__be32) > out->mtu)
		return PUNT_TOO_BIG;
	if (f->hops >= MAX_HOPS)
		return PUNT_LOOP;
	if (!s->used)
		begin_stack(s, false);
	if (f->segment && takes_single(n->port))
		return plain_before(f) ? drop_labelled(f, REASON_SUPER_FRAME) : PUNT_SUPER_FRAME;
	class = class_of_ip(&f->header);
	if (n->flags & LABEL_RESERVED) {
		class = class_by_reservation(f, s, r->space, ftn, n->pushes * sizeof(__be32));
		if (class == NO_ENTRY)
			return drop_labelled(f, REASON_RESERVATION_EXCEEDED);
	}
	below = ENTRY_BOTTOM | class;
	lower_ip(f, s, f->hops - s->aged + 1);
	first = n->flags & LABEL_UNIFORM ? ttl(&f->header) : n->ttl;
	f->header.eth.h_proto = bpf_htons(ETH_P_MPLS_UC);
	if (!push_all(f, s, n, below, first, first))
		return drop_labelled(f, REASON_LABEL_STACK);
	depart(f, n->port, *(const word *)n->mac, out);
	f->reserved = is_reserved(n, below);
	s->aged = f->hops;
	return WALK_ON;
}
