/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Storm control: how many frames to groups, broadcast and multicast, a LAN's tunnel takes a second. It is the meter
 * of the tunnel's port, which holds what one second lets in. A frame that a bridge floods because it does not know
 * the destination has no mark that could be seen here: it is not counted.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "meter.h"
#include "needs.h"
#include "tunnel.h"

static __always_inline bool is_group(const struct __sk_buff *skb)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	return (void *)(eth + 1) <= (void *)(long)skb->data_end && eth->h_dest[0] & 1;
}

/* Has the tunnel at this port no room for the frame? */
static __always_inline bool is_storm(const struct __sk_buff *skb, const struct frame *f, const struct encapsulation *e,
				     __u32 port)
{
	struct meter *m;

	if (!with_storm_control || !e->storm || !is_group(skb))
		return false;
	m = bpf_map_lookup_elem(&meters, &port);
	return m && !conforms(m, frames_of(f), f->length, bpf_ktime_get_coarse_ns());
}
