/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * An edit: what has to be written so that the frame becomes what nodes on its way have made of it. Nodes change a
 * copy of the frame's head (header.h); the frame itself is written once, at the exits (skb.h, xdp.h), by this
 * description alone.
 *
 *	came	[ cut: outer headers ][ takes: head ][ rest ]
 *	leaves	[ outer: outer headers ][ puts: head ][ rest ]
 *
 *	                      takes, puts         sum
 *	IPv4 hop              HOP_HEAD, HOP_HEAD  0: the header's words sum to the same as before
 *	IPv6 hop              HOP_HEAD, HOP_HEAD  what was taken off the hop limit
 *	ECN out of a tunnel   HOP_HEAD, HOP_HEAD
 *	label swapped         ETH_HLEN + 4, same  of both labels
 *	label pushed          HOP_HEAD, and 4 more
 *	label popped          HOP_HEAD + 4, and 4 less
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/types.h>

struct edit {
	__u8 cut;   /* bytes of outer headers before the frame, which go */
	__u8 outer; /* bytes of outer headers that take their place: struct wrapping, from eth on */
	__u8 takes; /* so many bytes, with which the frame begins, give place to */
	__u8 puts;  /* so many of the copy, from header.eth on; 0: the frame stays as it is */
	__u32 sum;  /* added to the sum of what is behind the Ethernet header (CHECKSUM_COMPLETE) */
};

#define HOP_HEAD (ETH_HLEN + 12) /* up to IPv4's checksum, and past IPv6's hop limit */
#define HEAD_MASK 63 /* all that is put fits */

/* How many bytes the frame loses at its beginning; negative: it grows. */
static __always_inline int shrinks(const struct edit *e) { return e->cut + e->takes - e->outer - e->puts; }
