/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why the fast path handed a frame to a router's own kernel: every punt has one name, here and nowhere else. As with
 * drops (reasons.h), user space reads the names from this enum's BTF, and values are only appended.
 */
#pragma once

enum punt {
	WALK_ON = 0, /* no reason: the walk goes on */

	/* The frame is the router's own business. */
	PUNT_LOCAL,	    /* for the router itself: its addresses, broadcast, multicast */
	PUNT_NOT_IP,	    /* ARP, IS-IS, MPLS, VLAN tags, ... */
	PUNT_OTHER_STATION, /* not for the MAC address of the router's interface */

	/* The frame needs what only the kernel does. */
	PUNT_MALFORMED,	       /* a header that the kernel would refuse, or padding that it would cut */
	PUNT_OPTIONS,	       /* IPv4 options, IPv6 hop-by-hop header */
	PUNT_FRAGMENT,
	PUNT_TTL,	       /* TTL or hop limit ends here */
	PUNT_TOO_BIG,	       /* for the MTU of the way on */
	PUNT_SOURCE,	       /* a source address that routers do not forward (martian, the router's own) */
	PUNT_SCOPE,	       /* a destination that routers do not forward (multicast, loopback, link-local, ...) */
	PUNT_NO_ROUTE,
	PUNT_REJECT,	       /* blackhole, unreachable, prohibit */
	PUNT_UNRESOLVED,       /* the next hop's MAC address is not known, or its interface is down */
	PUNT_STALE_NEIGHBOUR,  /* the kernel is to ask whether the neighbour is still there */
	PUNT_REDIRECT,	       /* leaves by the interface it came by */
	PUNT_LOOP,	       /* after 64 hops */

	/* The router is not on the fast path. */
	PUNT_INELIGIBLE,   /* the router, or this interface, forwards in its kernel */
	PUNT_ROUTE_KIND,   /* a route of a kind that is not mirrored */
	PUNT_LEASE,	   /* the mirror has no agent */
	PUNT_INCONSISTENT, /* the mirror contradicts itself: being changed at this moment */

	/*
	 * For a queue or a slow policer, which would take it for one frame: its sender's interface says whether it is
	 * cut before (gso_max_segs).
	 */
	PUNT_SUPER_FRAME,

	/* With labels, which no kernel sees: the frame is dropped, and frame.drop says why. */
	PUNT_AGENT,    /* the agent is told of it (unwalked.h) */
	PUNT_WITHHELD, /* it would be, but there were too many */

	PUNTS, /* their number */

	/* No punts. */
	UNEXAMINED = 252, /* what routers think of the header is not known yet (frame.refused) */
	AGAIN = 253,	  /* the same router looks again, without the label that it has taken off (mpls.h) */
	DROPPED = 254,	  /* by the router: frame.drop says why */
	TO_PROGRAM = 255, /* the frame has come to a node that has a packet program (skb.h) */
};

/* Puts the enum into the object's BTF; nothing uses it. */
enum punt *punt_names __attribute__((unused));
