// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * port_ingress: tc ingress of a port, where every frame that a node sends enters the data path.
 *
 * Frames are not parsed beyond the destination address and not changed: any EtherType, VLAN tags, jumbo frames and GSO
 * super-frames pass as they are, with their offloads (checksum, TSO).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "fib.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"

struct frame {
	__u32 length; /* with the Ethernet header, without an accelerated VLAN tag */
	__u32 from;   /* ifindex */
	const struct port *port;
	const struct port *peer; /* NULL: the kernel's bridge takes the frame */
};

/* Whose frame is it? */
static __always_inline enum reason enter(struct __sk_buff *skb, struct frame *f)
{
	f->length = skb->len;
	f->from = skb->ifindex;
	f->port = find_port(f->from);
	return f->port ? CONTINUE : REASON_UNKNOWN_PORT;
}

/* Where does its link lead? Both ends must say so: an index that came to mean another port leads nowhere. */
static __always_inline enum reason follow(struct frame *f)
{
	switch (f->port->mode) {
	case MODE_NONE:
		break;
	case MODE_KERNEL:
		return CONTINUE;
	case MODE_PEER:
	case MODE_QUEUE:
		f->peer = find_port(f->port->peer);
		return f->peer && f->peer->peer == f->from ? CONTINUE : REASON_PEER_GONE;
	}
	return REASON_NOT_WIRED;
}

/* Would the receiving interface take it? As __is_skb_forwardable() in the kernel, which a veth pair asks: a tag is not
 * counted, and a super-frame passes, because it stands for frames that fit. */
static __always_inline enum reason fit(const struct __sk_buff *skb, const struct frame *f)
{
	const __u32 vlan_tag = 4;

	if (!f->peer || skb->gso_size)
		return CONTINUE;
	return f->length > f->peer->mtu + ETH_HLEN + vlan_tag ? REASON_TOO_BIG : CONTINUE;
}

/* May the frame be handed to the peer's node at once? What the receiver does with it depends on skb->pkt_type, which the
 * kernel set for the port's own address, and which bpf_redirect_peer() leaves so before Linux 6.15 and since then resets to
 * PACKET_HOST. So only frames for the node's address are handed over. All others (broadcast, multicast, other stations', also
 * after the node changed its address) go through the peer's device, where the kernel judges again. */
static __always_inline int direct(struct __sk_buff *skb, const struct frame *f)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return 0;
	for (int i = 0; i < ETH_ALEN; i++)
		if (eth->h_dest[i] != f->peer->mac[i])
			return 0;
	return bpf_skb_change_type(skb, PACKET_HOST) == 0;
}

/* The one exit. */
static __always_inline int leave(struct __sk_buff *skb, const struct frame *f, enum reason why)
{
	__u32 peer;

	if (why != CONTINUE) {
		count_drop(f->from, why);
		return TC_ACT_SHOT;
	}
	if (!f->peer)
		return TC_ACT_OK;
	peer = f->port->peer;
	if (f->port->mode == MODE_PEER && direct(skb, f)) {
		count_handed(peer, f->length);
		return bpf_redirect_peer(peer, 0);
	}
	return bpf_redirect(peer, 0);
}

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	struct frame f = {};
	enum reason why = enter(skb, &f);

	if (why == CONTINUE)
		why = follow(&f);
	if (why == CONTINUE)
		why = fit(skb, &f);
	return leave(skb, &f, why);
}

char _license[] SEC("license") = "Dual BSD/GPL";
