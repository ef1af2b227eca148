/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ports: the substrate's ends of the nodes' interfaces, by ifindex. User space writes, programs read. Ports are made
 * with an ifindex below MAX_PORTS, so that looking one up is a matter of three instructions.
 */
#pragma once

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#define MAX_PORTS 16384 /* datapath.MaxPorts */

/* What is done with frames that the node sends into the port. */
enum mode {
	MODE_NONE = 0, /* dropped: not wired */
	MODE_KERNEL,   /* left to the port's master, a bridge */
	MODE_PEER,     /* handed to the peer port's node at once */
	MODE_QUEUE,    /* queued at the peer port's device, whose qdisc shapes that direction */
	MODE_TUNNEL,   /* sent into the tunnel that begins at the peer port, of which this one is the far end */
};

struct port {
	enum mode mode;
	__u32 peer;	    /* ifindex of the port joined with; MODE_PEER, MODE_QUEUE, MODE_TUNNEL */
	__u32 mtu;	    /* of the node's interface: what it receives is no longer; 0: no such port */
	__u8 mac[ETH_ALEN]; /* of the node's interface, as it was created */
	/* There is no node: the device itself leads out of the machine, or a tunnel begins here (tunnel.h). */
	__u8 external;
	__u8 classified; /* rules choose the class of frames that the node sends (class.h) */
	__u8 policed;	 /* a policer bounds what the node sends (police.h), */
	__u8 single;	 /* so slow that a super-frame would be a burst of its own: routers' kernels cut it */
	/*
	 * Device that makes frames plain which a packet program is to see behind this link (skb.h): it cuts
	 * super-frames. At its far end they enter the link again. 0: there is none.
	 */
	__u16 plain;
	__u16 queues; /* that a packet program of the port's node chooses from; 0: it chooses none (class.h) */
	__u8 reserves; /* frames within a reservation of their LSP have a class of their own (class.h) */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

static __always_inline const struct port *find_port(__u32 ifindex)
{
	const struct port *p = bpf_map_lookup_elem(&ports, &ifindex);

	return p && p->mtu ? p : NULL;
}
