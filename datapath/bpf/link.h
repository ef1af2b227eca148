/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A frame on a link: what it is like, where it came from and where it has come to.
 */
#pragma once

#include "ports.h"
#include "reasons.h"

struct walk;

/* What tells ways of the program apart lies in pairs of words: the verifier remembers eight bytes together, or not at all. */
struct frame {
	__u32 length;	/* with the Ethernet header, without an accelerated VLAN tag */
	__u32 segment;	/* of a GSO super-frame: payload of each of the frames that it stands for; else 0 */
	__u32 tagged;	/* has an accelerated VLAN tag */
	__u32 from;	/* port by which it entered its link */
	__u32 at;	/* port at the link's other end; means nothing if a bridge has the frame (MODE_KERNEL) */
	enum mode mode; /* how it gets there */
	__u32 longest;	/* length of the longest of the frames that a super-frame stands for, at least; of any other frame its own */
	__u8 external;	/* there is no node at the other end: it leads out of the machine */
	__u8 unread;	/* what the kernel knows of the frame is not true any more: it goes through a device, where it is looked at anew */
	struct walk *walk; /* what routers on the way did to it; NULL: there was none */
};

/*
 * Where does the link lead? Both ends must say so: an index that came to mean another port leads nowhere. (The far end of a tunnel's veth
 * pair is no end of the link, which the near one is.)
 */
static __always_inline enum reason cross(struct frame *f)
{
	const struct port *port = find_port(f->from), *peer;
	const __u32 vlan_tag = 4;
	__u32 mtu;

	if (!port)
		return REASON_UNKNOWN_PORT;
	f->mode = port->mode;
	switch (f->mode) {
	case MODE_NONE:
		return REASON_NOT_WIRED;
	case MODE_KERNEL:
		return CONTINUE;
	case MODE_PEER:
	case MODE_QUEUE:
	case MODE_TUNNEL:
		break;
	default:
		return REASON_NOT_WIRED;
	}
	f->at = port->peer;
	peer = find_port(f->at);
	if (!peer || (peer->peer != f->from && f->mode != MODE_TUNNEL))
		return REASON_PEER_GONE;
	f->external = peer->external;
	/* Would both ends take it? As __is_skb_forwardable() in the kernel, which the sender's veth pair asks, and the receiver's: a
	 * tag is not counted, and a super-frame passes. Where it leaves the machine, it is judged by the frames that it stands for: a node may send
	 * such as do not fit, with another MTU than the link's, or by packet sockets. */
	if (f->segment && !peer->external)
		return CONTINUE;
	mtu = port->mtu < peer->mtu ? port->mtu : peer->mtu;
	return f->longest > mtu + ETH_HLEN + vlan_tag ? REASON_TOO_BIG : CONTINUE;
}
