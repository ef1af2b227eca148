/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Label rules: which frames get the labels of an FTN (impose.h) because of what they are, and not because of the route by
 * which they leave. They belong to a router, by its label space; its legs say that there are some (LEG_LABEL_RULES), so
 * that other routers' frames are not looked up. The first rule counts that matches, and whose LSP is there: a frame
 * stays with its route while the LSP is down, and where the LSP would send it back by the link that it came by.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "fib.h"
#include "frame.h"
#include "label_table.h"
#include "needs.h"
#include "rule.h"

#define MAX_LABEL_RULES 64 /* datapath.MaxLabelRules; of a router */

struct label_classifier {
	__u64 number;
	struct rule rules[MAX_LABEL_RULES]; /* their classes are FTNs */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROUTERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32); /* label space */
	__type(value, struct label_classifier);
} label_rules SEC(".maps");

/* What routers with rules forward has been examined (walk.h): it is IP, whole, and without options. */
static __always_inline void read_header_key(const struct frame *f, struct packet_key *k)
{
	const struct header *h = &f->header;
	const bool ip4 = is_ip4(h);
	const __u32 above = ETH_HLEN + (ip4 ? sizeof(h->ip4) : sizeof(h->ip6));
	const __be16 *ports = NULL;

	if (ip4)
		read_ip4_key(&h->ip4, k);
	else
		read_ip6_key(&h->ip6, k);
	if (has_ports(k->protocol) && f->length >= above + sizeof(h->above4.ports))
		ports = ip4 ? h->above4.ports : h->above6.ports;
	if (ports && (ports[0] | ports[1])) /* behind four labels, the copy does not have those of IPv6 (expose_ip()) */
		set_ports(k, ports);
}

/* Is there an LSP for the FTN that leads on? */
static __always_inline bool leads_on(__u32 space, __u32 ftn, __u32 at)
{
	const struct nhlfe *n = find_nhlfe(space, FTN | ftn);
	__u32 port = n ? n->port : at;
	const struct leg *out = port != at ? find_leg(port) : NULL;

	return out && out->flags & LEG_UP;
}

/* What bpf_loop() hands to its callback has to be on the stack. */
struct rule_turn {
	const struct label_classifier *rules;
	struct packet_key key;
	__u32 space, at, ftn;
};

/* One rule. Returns 1 where it has decided. */
static long try_rule(__u32 i, struct rule_turn *t)
{
	const struct rule *r;

	if (i >= MAX_LABEL_RULES)
		return 1;
	r = &t->rules->rules[i];
	if (!does_match(r, &t->key) || !leads_on(t->space, r->class, t->at))
		return 0;
	t->ftn = r->class;
	return 1;
}

/* The FTN that the router's rules give the frame; 0: none. */
__noinline __u32 ftn_by_rules(struct frame *f, __u32 space)
{
	struct rule_turn t = {.space = space};

	t.rules = with_mpls ? bpf_map_lookup_elem(&label_rules, &t.space) : NULL;
	if (!f || !t.rules)
		return 0;
	t.at = f->at;
	read_header_key(f, &t.key);
	bpf_loop(t.rules->number, try_rule, &t, 0);
	return t.ftn;
}

static __always_inline bool leads_to_gateway(const struct nexthop *next)
{
	__u8 kind = *(volatile const __u8 *)&next->to.kind;

	return kind == NEXTHOP_GATEWAY || kind == NEXTHOP_STALE || kind == NEXTHOP_UNRESOLVED;
}

/*
 * The FTN of a frame with this next hop; 0: it goes without labels. Rules are for what the router would send to another
 * one: what is for a station of its own link stays there.
 */
static __always_inline __u32 choose_ftn(struct frame *f, const struct leg *in, __u32 space, const struct nexthop *next)
{
	__u32 ftn = 0;

	if (in->flags & LEG_LABEL_RULES && leads_to_gateway(next))
		ftn = ftn_by_rules(f, space);
	return ftn ?: next->ftn;
}
