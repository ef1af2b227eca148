/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The walk: what the routers on a frame's way would do with it, one after the other, without waking any of them.
 *
 * It begins where a frame has crossed a link to a port whose node is a mirrored router, and ends
 *	- at a node that is no mirrored router, or where a router has to see the frame (punt.h): it is handed to that node,
 *	  as the routers before have changed it;
 *	- before a queue, or a bridge: they take it as the last router would have sent it (a super-frame before a queue: see punt.h);
 *	- where a link leads nowhere (reasons.h).
 * Nothing but the Ethernet addresses, TTL and checksum changes in a router, so they are changed in a copy, TTL and checksum once. (The
 * kernel also derives skb->priority from the TOS, in ip_forward(); a veth pair clears it at the end of the router's own link, so
 * nobody behind it could tell.)
 * This file does not know what kind of program it is in: that reads the copy, and writes it back.
 */
#pragma once

#include "count.h"
#include "fib.h"
#include "flow.h"
#include "header.h"
#include "link.h"
#include "punt.h"
#include "reasons.h"

#define MAX_HOPS 64

/* A router that was passed: the ports of the two interfaces. */
struct pass {
	__u16 in, out; /* MAX_PORTS fits */
};

struct walk {
	struct header header;
	__u64 flow; /* its hash; 0: nobody asked yet */
	__u64 tick, now; /* jiffies, and the time then: these two outlive the walk */
	__u32 packet; /* length of the longest packet that the frame stands for */
	__u32 source; /* router that has the source address; 0: none, MANY */
	enum punt refused; /* by any router: the header says so */
	__u8 family;	   /* enum leg_flags that interfaces on the way must have */
	__u8 untraced;	   /* the walk may come to nothing: it must leave no trace */
	__u32 router; /* whose turn it was when the walk ended, if any */
	enum punt why;
	enum reason drop;
	__u32 hops;
	struct pass passed[MAX_HOPS];
};

/* Where programs keep it: larger than their stack. Nothing interrupts a program in favour of another one on the same CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* Whose turn is it? NULL: no router's, or there is no link. */
static __always_inline const struct leg *arrived(const struct frame *f)
{
	return f->mode == MODE_PEER ? find_leg(f->at) : NULL;
}

/* It is a router's turn: the program has to read the header into what this returns. */
static __always_inline struct walk *begin(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&walks, &zero);
}

/* The coarse clock moves with jiffies, which take one load: it is asked once a tick. */
static __always_inline __u64 coarse_clock(struct walk *w)
{
	__u64 tick = bpf_jiffies64();

	if (w->tick != tick) {
		w->tick = tick;
		w->now = bpf_ktime_get_coarse_ns();
	}
	return w->now;
}

static __always_inline bool leased(struct walk *w)
{
	__u32 zero = 0;
	const __u64 *until = bpf_map_lookup_elem(&lease, &zero);

	return until && coarse_clock(w) < *until;
}

/* Would routers in general forward the frame? */
static __always_inline enum punt inspect(struct walk *w, const struct frame *f)
{
	if (f->tagged)
		return PUNT_NOT_IP;
	switch (w->header.eth.h_proto) {
	case bpf_htons(ETH_P_IP):
		w->family = LEG_IPV4;
		break;
	case bpf_htons(ETH_P_IPV6):
		w->family = LEG_IPV6;
		break;
	default:
		return PUNT_NOT_IP;
	}
	if (!leased(w))
		return PUNT_LEASE;
	return w->family == LEG_IPV4 ? inspect_ip4(&w->header, f) : inspect_ip6(&w->header, f);
}

/* Does a router's address end like this one? */
static __always_inline bool is_suspect(__be32 source)
{
	__u32 bit = bpf_ntohl(source) % SUSPECTS, index = bit / 64;
	const __u64 *bits = bpf_map_lookup_elem(&suspects, &index);

	return bits && *bits >> bit % 64 & 1;
}

/* Which router of the slice has the source address? IPv6 routers do not ask. */
static __always_inline __u32 find_source(const struct walk *w, const struct router *r)
{
	const __u32 *owner;
	struct source s;

	if (w->family != LEG_IPV4 || !is_suspect(w->header.ip4.saddr))
		return 0;
	s.slice = r->slice;
	s.address = w->header.ip4.saddr;
	owner = bpf_map_lookup_elem(&sources, &s);
	return owner ? *owner : 0;
}

/* The leaf that a group has for this flow. */
static __always_inline __u32 choose(struct walk *w, const struct frame *f, __u32 group, __u32 router)
{
	if (!w->flow)
		w->flow = hash_flow(&w->header, f) | 1;
	return node_entry(ENTRY_INDEX(group), mix(w->flow + router));
}

static __always_inline union adjacency *find_shortcut(__u32 port, __be32 address)
{
	struct shortcut want = {.port = port, .address = address}, *s;
	__u32 place = want.neighbour * 0x9e3779b97f4a7c15 >> 48;

	s = bpf_map_lookup_elem(&shortcuts, &place);
	return s && *(volatile __u64 *)&s->neighbour == want.neighbour ? &s->to : NULL;
}

/* The neighbour that the frame goes to; NULL: not known. */
static __always_inline union adjacency *find_adjacency(struct nexthop *next, const struct walk *w)
{
	union adjacency *to;
	struct neighbour n = {};

	if (next->to.kind != NEXTHOP_LINK)
		return &next->to;
	if (w->family == LEG_IPV4) {
		to = find_shortcut(next->port, w->header.ip4.daddr);
		if (to)
			return to;
	}
	n.port = next->port;
	if (w->family == LEG_IPV4) {
		n.address[10] = n.address[11] = 0xff;
		__builtin_memcpy(&n.address[12], &w->header.ip4.daddr, 4);
	} else {
		__builtin_memcpy(n.address, &w->header.ip6.daddr, 16);
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

static __always_inline bool is_queued(__u32 port)
{
	const struct port *p = find_port(port);

	return p && p->mode == MODE_QUEUE;
}

/* Send the frame out of the router, to the next hop. */
static __always_inline enum punt send(struct frame *f, struct walk *w, __u32 router, struct nexthop *next)
{
	union adjacency *to = find_adjacency(next, w), now;
	const struct leg *out;
	struct pass *p;
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
	if (w->packet > out->mtu)
		return PUNT_TOO_BIG;
	if (now.kind == NEXTHOP_STALE) {
		/* The kernel sees one frame, and then looks after its neighbour; frames behind this one need not wait for it. */
		if (!w->untraced)
			__sync_val_compare_and_swap(&to->word, now.word, now.word + ((__u64)(NEXTHOP_GATEWAY - NEXTHOP_STALE) << 48));
		return PUNT_STALE_NEIGHBOUR;
	}
	if (f->segment && is_queued(next->port))
		return PUNT_SUPER_FRAME;
	if (w->hops >= MAX_HOPS)
		return PUNT_LOOP;
	p = &w->passed[w->hops];
	p->in = f->at;
	p->out = next->port;
	w->hops++;
	readdress(&w->header, now.mac, out->mac);
	f->from = next->port;
	return WALK_ON;
}

/*
 * The verifier looks at a global function once, by itself, and not again for each way that leads to it: lookups are most of
 * what there is to look at.
 */
__noinline __u32 find_entry4(__u32 root, __u32 destination)
{
	return find_entry(root, (const __u8 *)&destination, 4);
}

__noinline __u32 find_entry6(__u32 root, __u64 first, __u64 second)
{
	__u64 destination[] = {first, second};

	return find_entry(root, (const __u8 *)destination, 16);
}

/* What a router has for the destination: 0 if it is not on the fast path, or if there is no route. */
static __always_inline __u32 look_up(__u32 root, const struct header *h)
{
	const __u64 *to6 = (const void *)&h->ip6.daddr;

	return is_ip4(h) ? find_entry4(root, h->ip4.daddr) : find_entry6(root, to6[0], to6[1]);
}

/* What is the same for all routers of a slice. */
static __always_inline void examine(struct frame *f, struct walk *w, const struct router *r)
{
	w->refused = inspect(w, f);
	if (w->refused != WALK_ON)
		return;
	w->source = find_source(w, r);
	w->packet = packet_length(&w->header, f);
}

/*
 * What a router does with a frame that came to its interface. The route is looked up before anything else, and needed last: in a large table it
 * is in no cache, and what is done meanwhile costs nothing.
 */
static __always_inline enum punt forward(struct frame *f, struct walk *w, const struct leg *in)
{
	const struct router *r = bpf_map_lookup_elem(&routers, &in->router);
	const struct header *h = &w->header;
	__u32 root, entry, index;
	struct nexthop *next;

	if (!r)
		return PUNT_INCONSISTENT;
	root = is_ip4(h) ? r->root4 : r->root6;
	entry = look_up(root, h);
	if (!w->hops)
		examine(f, w, r);
	if (w->refused == PUNT_NOT_IP)
		return w->refused;
	if (!same_mac(h->eth.h_dest, in->mac))
		return h->eth.h_dest[0] & 1 ? PUNT_LOCAL : PUNT_OTHER_STATION;
	if (!root || !(in->flags & LEG_UP) || !(in->flags & w->family))
		return PUNT_INELIGIBLE;
	if (w->refused)
		return w->refused;
	if (w->source && (w->source == in->router || w->source == MANY))
		return PUNT_SOURCE;
	if (ttl(h) <= w->hops + 1)
		return PUNT_TTL;
	if (ENTRY_TYPE(entry) == ENTRY_GROUP)
		entry = choose(w, f, entry, in->router);
	if (ENTRY_TYPE(entry) != ENTRY_LEAF)
		return PUNT_INCONSISTENT;
	index = ENTRY_INDEX(entry);
	next = bpf_map_lookup_elem(&nexthops, &index);
	return next ? send(f, w, in->router, next) : PUNT_INCONSISTENT;
}

/* One router, and the link behind it. Returns 1 where the walk ends. */
static long step(__u32 number __attribute__((unused)), struct frame *f)
{
	struct walk *w = f->walk;
	const struct leg *in = find_leg(f->at);

	if (!in)
		return 1;
	w->router = in->router;
	w->why = forward(f, w, in);
	if (w->why != WALK_ON)
		return 1;
	w->drop = cross(f);
	return w->drop != CONTINUE || f->mode != MODE_PEER;
}

/* Walk on from a router's interface where the frame is; its header has been read. */
static __always_inline enum reason walk(struct frame *f, struct walk *w, bool untraced)
{
	w->flow = 0;
	w->hops = 0;
	w->why = WALK_ON;
	w->drop = CONTINUE;
	w->family = 0;
	w->untraced = untraced;
	w->refused = WALK_ON;
	w->source = 0;
	w->packet = 0;
	f->walk = w;
	bpf_loop(MAX_HOPS + 1, step, f, 0);
	age(&w->header, w->hops);
	return w->drop;
}

static long count_pass(__u32 i, struct frame *f)
{
	struct walk *w = f->walk;

	if (i < MAX_HOPS)
		count_walked(w->passed[i].in, w->passed[i].out, f->length);
	return 0;
}

/* Enters the walk into the books, once it is certain that it takes place. */
static __always_inline void account(struct frame *f)
{
	if (f->walk->hops == 1)
		count_pass(0, f); /* without the call of a loop */
	else if (f->walk->hops)
		bpf_loop(f->walk->hops, count_pass, f, 0);
	if (f->walk->why != WALK_ON)
		count_punt(f->walk->router, f->walk->why);
}
