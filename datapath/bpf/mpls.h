/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Label switching (RFC 3031, 3032, 3443): what a router of the walk does with a frame that carries labels, or that gets
 * them. Tables are written by user space (datapath/mpls.go); no kernel's are mirrored.
 * docs/decisions/028-mpls-on-the-walk.md has the reasons.
 *
 *	(label space, label) -> NHLFE: labels off, labels on, next hop	the incoming label map
 *	next hop of a route -> NHLFE					the FTN: which frames get labels
 *
 * The frame is not touched before it leaves. A record says how many of the labels that it came with are gone, and which
 * stand in their place; settle_labels() makes an edit of it. Between two operations, the TTL of an IP header in the
 * copy is what it is to be: what is left to settle() otherwise (walk.h) is written before labels go on.
 *
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
#include "label_table.h"
#include "needs.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"
#include "reserve.h"

#define MAX_LABELS 4 /* datapath.MaxLabels; that are taken off a frame, and that stand on it in their place */

/* What has become of the labels that a frame came with, and of its IP header. */
struct label_edit {
	__u8 hidden; /* IP is behind labels that the frame came with: the copy does not have it at its place */
	__u8 popped; /* of the labels that the frame came with */
	__u8 pushed;
	__u8 pad;
	__u32 lowered; /* by so much has the TTL of IP been lowered */
	__be32 entry[MAX_LABELS]; /* pushed, the lowest first */
};

/* The label stack of the frame at work. One for each CPU, as the record of the frame is (frame.h). */
struct label_stack {
	struct label_edit is;
	struct label_edit came; /* as it was when the frame came to the router where it is (unwalked.h), */
	__u32 arrived;		/* and frame.packet */
	__u32 room;		/* of what is too big: of what length it would fit, as it came */
	__u32 used;		/* the frame has labels, or had */
	__u32 aged; /* hops that the header's TTL does not have to be lowered for any more */
	__u32 sum;  /* of what was popped, to be added to a sum of the frame */
	/* The entry that it is switched by, copied: what the table's becomes meanwhile does not matter. */
	struct nhlfe by;
	/* The last reservation that it was measured by: its number, 0 where there was none; and what was noted. */
	__u32 within;
	__u64 measured, frames, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct label_stack);
} label_stacks SEC(".maps");

static __always_inline struct label_stack *find_label_stack(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&label_stacks, &zero);
}

/* The frame meets its first label: one that it came with (hidden), or one that it gets. */
static __always_inline void begin_stack(struct label_stack *s, bool hidden)
{
	s->used = true;
	s->is.hidden = hidden;
	s->is.popped = 0;
	s->is.pushed = 0;
	s->is.lowered = 0;
	s->aged = 0;
	s->sum = 0;
	s->measured = 0;
}

/*
 * Copies what the space has for a label, or for an FTN. What has been found may be written anew while a program looks
 * at it: the kernel gives the memory of a hash's entry to the next one at once (since Linux 6.1). Returns false where
 * there is none.
 */
__noinline int read_nhlfe(__u32 space, __u32 label)
{
	struct label_stack *s = find_label_stack();
	const struct nhlfe *n;

	if (!with_mpls || !s)
		return false;
	n = find_nhlfe(space, label);
	if (!n)
		return false;
	s->by = *n;
	return true;
}

#define ENTRY_LABEL(e) ((e) >> 12)
#define ENTRY_TC 0xe00
#define ENTRY_BOTTOM 0x100
#define ENTRY_TTL(e) ((e) & 0xff)
#define NO_ENTRY (1ull << 32)

enum special_label { /* RFC 3032, 2.1 */
	LABEL_IPV4_NULL = 0,
	LABEL_ROUTER_ALERT = 1,
	LABEL_IPV6_NULL = 2,
	FIRST_LABEL = 16,
};

static __always_inline bool is_labelled(const struct frame *f)
{
	return f->header.eth.h_proto == bpf_htons(ETH_P_MPLS_UC);
}

/* A number below MAX_LABELS, so that the verifier sees it, wherever the compiler has found out that it is. */
static __always_inline __u32 within(__u32 n)
{
	asm volatile("" : "+r"(n));
	return n & (MAX_LABELS - 1);
}

/* Ones' complement: csum_add() in the kernel. */
static __always_inline __u32 sum_add(__u32 a, __u32 b) { return a + b + (a + b < b); }

/* The frame grows, or shrinks. */
static __always_inline void resize(struct frame *f, __s32 bytes)
{
	f->length += bytes;
	f->longest += bytes;
	f->packet += bytes;
}

/* The entry on top, as a number; NO_ENTRY: there is none, or it is too deep. */
static __always_inline __u64 read_top(const struct frame *f, const struct label_stack *s)
{
	const half *came = (const void *)&f->header.ip4;
	__u32 n = s->is.pushed;

	if (n)
		return bpf_ntohl(s->is.entry[within(n - 1)]);
	n = s->is.popped;
	if (!s->is.hidden || n >= MAX_LABELS || f->length < ETH_HLEN + sizeof(*came))
		return NO_ENTRY;
	return bpf_ntohl(came[within(n)]);
}

static __always_inline void pop_top(struct frame *f, struct label_stack *s, __u32 entry)
{
	if (s->is.pushed) {
		s->is.pushed--;
	} else {
		s->is.popped++;
		s->sum = sum_add(s->sum, ~bpf_htonl(entry));
	}
	resize(f, -(__s32)sizeof(__be32));
}

static __always_inline bool push_top(struct frame *f, struct label_stack *s, __u32 entry)
{
	__u32 n = s->is.pushed;

	if (n >= MAX_LABELS)
		return false;
	s->is.entry[within(n)] = bpf_htonl(entry);
	s->is.pushed = n + 1;
	resize(f, sizeof(__be32));
	return true;
}

/*
 * Puts an NHLFE's labels on what is there: `below` is an entry with the traffic class and, where it is IP,
 * ENTRY_BOTTOM. The first one has a TTL of its own.
 */
static __always_inline bool push_all(struct frame *f, struct label_stack *s, const struct nhlfe *n, __u32 below,
				     __u32 first, __u32 others)
{
	__u32 pushed = s->is.pushed, pushes = n->pushes, ttl = (below & ENTRY_BOTTOM) | first;
	const __u32 kept = ENTRY_TC & -(__u32)(n->flags / LABEL_KEEP_TC & 1); /* no branch to be followed */

	if (pushes > MAX_PUSHES || pushed + pushes > MAX_LABELS)
		return false;
	for (__u32 i = 0; i < MAX_PUSHES; i++) {
		if (i >= pushes)
			break;
		s->is.entry[within(pushed + i)] = bpf_htonl((n->push[i] & ~kept) | (below & kept) | ttl);
		ttl = others;
	}
	s->is.pushed = pushed + pushes;
	resize(f, pushes * sizeof(__be32));
	return true;
}

/* Lowers the TTL of the IP header in the copy. */
static __always_inline void lower_ip(struct frame *f, struct label_stack *s, __u32 by)
{
	age(&f->header, by);
	s->is.lowered += by;
}

/*
 * The last label is off: what is behind it takes its place in the copy, with ports, which four labels before IPv6 have
 * kept out of it. False: it is neither IPv4 nor IPv6.
 */
static __always_inline bool expose_ip(struct frame *f, struct label_stack *s)
{
	half *to = (void *)&f->header.ip4;
	const __u32 ports = sizeof(struct ipv6hdr) / sizeof(*to);
	__u32 skip = s->is.popped;

	asm volatile("" : "+r"(skip)); /* as within() */
	skip &= 2 * MAX_LABELS - 1;
	if (f->length < ETH_HLEN + sizeof(struct iphdr))
		return false;
	if (s->is.hidden) {
		for (__u32 i = 0; i <= ports; i++)
			to[i] = to[i + skip];
		if (f->header.ip4.version == 6)
			to[ports] &= (skip / MAX_LABELS & 1) - 1;
		s->is.hidden = 0;
	}
	switch (f->header.ip4.version) {
	case 4:
		f->header.eth.h_proto = bpf_htons(ETH_P_IP);
		return true;
	case 6:
		f->header.eth.h_proto = bpf_htons(ETH_P_IPV6);
		return f->length >= ETH_HLEN + sizeof(struct ipv6hdr);
	}
	return false;
}

/* The TTL of what is on top now; 256: there is nothing that may be looked at. */
static __always_inline __u32 ttl_on_top(const struct frame *f, const struct label_stack *s)
{
	__u64 top;

	if (!is_labelled(f))
		return ttl(&f->header);
	top = read_top(f, s);
	return top == NO_ENTRY ? 256 : ENTRY_TTL(top);
}

static __always_inline enum reason lower_top(struct frame *f, struct label_stack *s, __u32 have, __u32 want)
{
	__u64 top;

	if (!is_labelled(f)) {
		lower_ip(f, s, have - want);
		return CONTINUE;
	}
	top = read_top(f, s);
	pop_top(f, s, top);
	return push_top(f, s, (top & ~0xffull) | want) ? CONTINUE : REASON_LABEL_STACK;
}

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
static __always_inline enum reason switch_by(struct frame *f, struct label_stack *s, const struct leg *in, __u32 entry)
{
	const struct nhlfe *n = &s->by;
	bool sends = n->operation == LABEL_SWITCH, uniform = n->flags & LABEL_UNIFORM;
	const struct leg *out = NULL;
	enum reason why = CONTINUE;
	__u32 left = ENTRY_TTL(entry) - 1;

	if (sends) {
		if (ENTRY_TTL(entry) <= 1)
			return REASON_LABEL_TTL;
		out = find_way(n, in->router);
		if (!out)
			return REASON_LSP_DOWN;
	} else if (n->operation != LABEL_POP) { /* a newer agent's */
		return REASON_UNKNOWN_LABEL;
	}
	if (n->pushes) {
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

/* The frame has come to a router with labels. Returns an enum punt. */
__noinline int switch_label(struct frame *f)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	const struct router *r;
	const struct leg *in;
	enum reason why;
	__u32 at, router, label;
	__u64 top;

	if (!f || !s || f->tagged)
		return PUNT_NOT_IP;
	at = f->at; /* on the stack, where Linux 6.1 wants keys to be */
	in = find_leg(at);
	if (!in)
		return PUNT_NOT_IP;
	router = in->router;
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
	if (label == LABEL_IPV4_NULL || label == LABEL_IPV6_NULL)
		s->by = explicit_null;
	else if (!read_nhlfe(r->space, label) || (s->by.in && s->by.in != at))
		return drop_labelled(f, REASON_UNKNOWN_LABEL);
	why = switch_by(f, s, in, top);
	if (why != CONTINUE)
		return drop_labelled(f, why);
	return s->by.operation == LABEL_SWITCH ? WALK_ON : AGAIN;
}

/*
 * The traffic class that labels have over IP: its precedence (RFC 3270, 4.1 has no other default for E-LSPs). But that
 * of reservations says that a frame was measured, and IP does not say so: that precedence gets the class below.
 */
static __always_inline __u32 class_of_ip(const struct header *h)
{
	__u8 precedence = is_ip4(h) ? h->ip4.tos >> 5 : h->ip6.priority >> 1;

	return (__u32)(precedence == RESERVED_CLASS ? RESERVED_CLASS - 1 : precedence) << 9;
}

/* Hops for which the TTL of IP is still to be lowered. */
static __always_inline __u32 unpaid_hops(const struct frame *f)
{
	const struct label_stack *s = with_mpls ? find_label_stack() : NULL;

	return s && s->used ? f->hops - s->aged : f->hops;
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
 * Which traffic class does the frame get by its reservation, in an entry of labels? NO_ENTRY: it is dropped. Programs of
 * XDP do not measure, for the frame may be left to those of tc, which do.
 */
static __always_inline __u64 class_by_reservation(struct frame *f, struct label_stack *s, __u32 space, __u32 ftn)
{
	const __u32 more = s->by.pushes * sizeof(__be32);
	int is;

	if (f->untraced)
		return NO_ENTRY;
	s->measured = (__u64)space << 32 | FTN | ftn;
	s->frames = frames_of(f);
	s->bytes = reserved_bytes(f, more);
	is = measure(f, s->measured, more);
	if (is == MEASURED_BY_NOBODY)
		s->measured = 0;
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
	n = &s->by;
	if (!read_nhlfe(r->space, FTN | ftn) || n->operation != LABEL_SWITCH || !n->pushes)
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
		class = class_by_reservation(f, s, r->space, ftn);
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

/* The walk begins: nothing is known of labels. */
__noinline int begin_labels(void)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;

	if (s)
		s->used = 0;
	return 0;
}

/*
 * Writes the labels into the copy, before as much of IP's header as routers change, and describes the edit. (Nothing
 * is between: what came with labels that are still on has not had its IP header changed.) Returns false where the frame
 * has met no label. Where the walk ends because it would have too many steps, the router's kernel gets what is left.
 */
__noinline int settle_labels(struct frame *f)
{
	struct label_stack *s = with_mpls ? find_label_stack() : NULL;
	half *words, ip[(HOP_HEAD - ETH_HLEN) / sizeof(half)];
	__u32 pushed, sum;

	if (!f || !s || !s->used)
		return false;
	if (f->why == AGAIN)
		f->why = PUNT_LOOP;
	words = (half *)&f->header.ip4;
	pushed = s->is.pushed;
	asm volatile("" : "+r"(pushed)); /* as within() */
	pushed &= 2 * MAX_LABELS - 1;
	if (!is_labelled(f) && f->hops > s->aged)
		lower_ip(f, s, f->hops - s->aged);
	sum = s->sum;
	f->edit.takes = ETH_HLEN + s->is.popped * sizeof(__be32);
	f->edit.puts = ETH_HLEN + pushed * sizeof(__be32);
	if (!s->is.hidden) {
		__builtin_memcpy(ip, words, sizeof(ip));
		if ((*(__u8 *)ip & 0xf0) == 0x60)
			sum = sum_add(sum, ~(__u32)bpf_htons(s->is.lowered));
		for (__u32 i = 0; i < sizeof(ip) / sizeof(*ip); i++)
			words[pushed + i] = ip[i];
		f->edit.takes += sizeof(ip);
		f->edit.puts += sizeof(ip);
	}
	for (__u32 i = 0; i < MAX_LABELS; i++) {
		__be32 entry = s->is.entry[i];

		if (i >= pushed)
			break;
		words[within(pushed - 1 - i)] = entry;
		sum = sum_add(sum, entry);
	}
	f->edit.sum = sum;
	return true;
}
