/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is common to routers that forward IP (walk.h) and to those that switch labels (mpls.h): what they think of an IP
 * header, and how a frame leaves them.
 */
#pragma once

#include "fib.h"
#include "frame.h"
#include "header.h"
#include "needs.h"
#include "ports.h"
#include "punt.h"

static __always_inline bool leased(struct frame *f)
{
	__u32 zero = 0;
	const __u64 *until = bpf_map_lookup_elem(&lease, &zero);

	return until && coarse_clock(f) < *until;
}

/* Would routers in general forward the frame? */
static __always_inline enum punt inspect(struct frame *f)
{
	if (f->tagged)
		return PUNT_NOT_IP;
	switch (f->header.eth.h_proto) {
	case bpf_htons(ETH_P_IP):
		f->family = LEG_IPV4;
		break;
	case bpf_htons(ETH_P_IPV6):
		f->family = LEG_IPV6;
		break;
	default:
		return PUNT_NOT_IP;
	}
	if (!leased(f))
		return PUNT_LEASE;
	if (f->family == LEG_IPV4)
		return inspect_ip4(&f->header, f->length);
	return inspect_ip6(&f->header, f->length);
}

/* Does a router's address end like this one? */
static __always_inline bool is_possible_source(__be32 source)
{
	__u32 bit = bpf_ntohl(source) % POSSIBLE_SOURCES, index = bit / 64;
	const __u64 *bits = bpf_map_lookup_elem(&suspects, &index);

	return bits && *bits >> bit % 64 & 1;
}

/* The router of the slice that has the source address. IPv6 routers do not look for one. */
static __always_inline __u32 find_source(const struct frame *f, const struct router *r)
{
	const __u32 *owner;
	struct source s;

	if (f->family != LEG_IPV4 || !is_possible_source(f->header.ip4.saddr))
		return 0;
	s.slice = r->slice;
	s.address = f->header.ip4.saddr;
	owner = bpf_map_lookup_elem(&sources, &s);
	return owner ? *owner : 0;
}

/* What is the same for all routers of a slice. */
static __always_inline void examine(struct frame *f, const struct router *r)
{
	f->refused = inspect(f);
	if (f->refused != WALK_ON)
		return;
	f->source = find_source(f, r);
	f->packet = packet_length(&f->header, f->length, f->segment);
}

/* Does the link take a super-frame for one frame that is too long for it? */
static __always_inline bool takes_single(__u32 port)
{
	const struct port *p = with_queues || with_policers ? find_port(port) : NULL;

	return p && ((with_queues && p->mode == MODE_QUEUE) || (with_policers && p->single));
}

/*
 * Out of the router by its port, whose leg is `out`: to this address, from the port's. The link behind it comes next
 * (link.h).
 */
static __always_inline enum punt depart(struct frame *f, __u32 port, __u64 to, const struct leg *out)
{
	struct pass *p;

	if (f->hops >= MAX_HOPS)
		return PUNT_LOOP;
	p = &f->passed[f->hops];
	p->in = f->at;
	p->out = port;
	f->hops++;
	if (with_mpls)
		f->reserved = 0; /* mpls.h may know better */
	readdress(&f->header, to, *(const word *)out->mac);
	f->from = port;
	return WALK_ON;
}
