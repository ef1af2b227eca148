/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a frame did not go on: every drop has one name, here and nowhere else. User space reads the names from this
 * enum's BTF (package datapath, Reasons): REASON_NOT_WIRED is shown as "not wired". Append only: the values are
 * indices of counters in pinned maps. Whoever appends raises ABI in datapath/abi.go.
 */
#pragma once

enum reason {
	CONTINUE = 0, /* no reason: the frame goes on */

	REASON_UNKNOWN_PORT, /* entered at a device that no port record describes */
	REASON_NOT_WIRED,    /* the port is joined to nothing */
	REASON_PEER_GONE,    /* the port it is joined to does not exist any more */
	REASON_TOO_BIG,      /* longer than the MTU of the link's ends */
	REASON_NO_MEMORY,    /* to change the header of a frame whose bytes others hold too */

	/* Of tunnels (tunnel.h). */
	REASON_STRAY,	       /* came to the uplink, and is no tunnel's packet */
	REASON_MALFORMED,      /* an outer header that is not in order, or no Ethernet frame behind it */
	REASON_FRAGMENT,       /* an outer packet in fragments */
	REASON_UNKNOWN_TUNNEL, /* no tunnel of this kind and key from the sender ends here */
	REASON_CONGESTION,     /* met outside, and the inner packet cannot say so (RFC 6040, 4.2) */
	REASON_VLAN_TAGS,      /* more of them than a tunnel takes */
	REASON_SUPER_FRAME,    /* of a kind that the kernel could not cut inside a tunnel */
	REASON_NO_UPLINK,      /* nothing leads out of the substrate */
	REASON_NO_ROUTE,       /* to the tunnel's other end */
	REASON_STORM,	       /* more frames to groups than a LAN's tunnel takes (storm.h) */

	REASON_OFF_UNDERLAY, /* the outer route leads out by no interface of the underlay (outer_route.h) */
	REASON_POLICED,	     /* more than the link's policer lets in (police.h) */
	REASON_NO_PROGRAM,   /* came to a node whose packet program is not there (skb.h) */
	REASON_CHECKSUM,     /* an outer packet's, wrong or of a kind that the tunnel does not use (checksum.h) */

	/* Of frames with labels (mpls.h), counted at the port by which they left the node before. */
	REASON_UNKNOWN_LABEL, /* the router has none such, or not from this interface */
	REASON_LABEL_TTL,     /* ends here */
	REASON_LABEL_STACK,   /* more labels than are looked at, or no IP behind the last one */
	REASON_ROUTER_ALERT,  /* label 1: for a process of the router's, which is not there (unwalked.h) */
	REASON_LSP_DOWN,      /* the next hop's interface is down, or not there */
	REASON_LABEL_LOOP,    /* after 64 hops */
	REASON_RESERVATION_EXCEEDED, /* by an LSP whose excess is dropped (reserve.h) */

	REASON_NO_TIME, /* best effort, and the core that it came to has no time for it (early.h) */

	REASONS, /* their number */
};

/* Puts the enum into the object's BTF; nothing uses it. */
enum reason *reason_names __attribute__((unused));
