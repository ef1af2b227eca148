/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Links: where the port leads by which a frame entered.
 */
#pragma once

#include "frame.h"
#include "needs.h"
#include "police.h"
#include "ports.h"
#include "reasons.h"

/*
 * Where does the link lead that begins at the port? Both ends must name each other: an index that came to mean another
 * port leads nowhere. (The far end of a tunnel's veth pair is no end of the link; the near one is. A device that makes
 * frames plain is named in addition to the other end.)
 */
static __always_inline enum reason lead(struct frame *f, const struct port *port)
{
	const struct port *peer;
	const __u32 vlan_tag = 4;
	__u32 from = f->from, at, mtu;
	enum mode mode = port->mode;

	f->mode = mode;
	switch (mode) {
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
	at = port->peer;
	f->at = at;
	peer = find_port(at);
	if (!peer || (peer->peer != from && peer->plain != from && mode != MODE_TUNNEL))
		return REASON_PEER_GONE;
	f->external = peer->external;
	/*
	 * Do both ends take it? As __is_skb_forwardable() in the kernel, which the sender's veth pair asks, and the
	 * receiver's: a tag is not counted, and a super-frame passes. Where it leaves the machine, the frames that it
	 * stands for are compared: a node may send longer ones, with another MTU than the link's, or by packet sockets.
	 */
	if (f->segment && !peer->external)
		return CONTINUE;
	mtu = port->mtu < peer->mtu ? port->mtu : peer->mtu;
	return f->longest > mtu + ETH_HLEN + vlan_tag ? REASON_TOO_BIG : CONTINUE;
}

/*
 * Moves the frame to the other end of its link, unless the link's policer is against it. A policer is never against
 * what is within a reservation, which was admitted to the link's rate: others get what is left.
 */
static __always_inline enum reason cross(struct frame *f)
{
	__u32 from = f->from;
	const struct port *port = find_port(from);
	enum reason why;

	if (!port)
		return REASON_UNKNOWN_PORT;
	why = lead(f, port);
	if (!with_policers || !port->policed || why != CONTINUE)
		return why;
	if (with_mpls && f->reserved)
		return f->untraced ? REASON_POLICED : charge(f, from); /* untraced: it is left to tc */
	if (f->untraced) {
		f->policed = true;
		return CONTINUE;
	}
	return admit(f, from) ? CONTINUE : REASON_POLICED;
}
