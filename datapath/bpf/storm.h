/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Storm control: how many frames to groups, broadcast and multicast, a LAN's tunnel takes a second.
 *
 * A bucket holds what one second lets in, and is kept as one number, the time when it would be full again: the virtual scheduling algorithm of
 * ITU-T I.371 (GCRA). All CPUs share it without a lock. A frame that a bridge floods because it does not know the destination has no mark
 * that could be seen here: it is not counted.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "link.h"
#include "ports.h"
#include "tunnel.h"

/* When each tunnel's bucket would be full again: ns of the coarse monotonic clock, by port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} buckets SEC(".maps");

static __always_inline bool is_group(const struct __sk_buff *skb)
{
	const struct ethhdr *eth = (void *)(long)skb->data;

	return (void *)(eth + 1) <= (void *)(long)skb->data_end && eth->h_dest[0] & 1;
}

/* A super-frame counts for all that it stands for. */
static __always_inline __u64 frames_of(const struct frame *f) { return f->segment ? 1 + f->length / f->segment : 1; }

/* Has the tunnel at this port no room for the frame? */
static __always_inline bool is_storm(const struct __sk_buff *skb, const struct frame *f, const struct encapsulation *e, __u32 port)
{
	const __u64 second = 1000000000;
	__u64 now, was, full, *bucket;

	if (!e->storm || !is_group(skb))
		return false;
	bucket = bpf_map_lookup_elem(&buckets, &port);
	if (!bucket)
		return false;
	now = bpf_ktime_get_coarse_ns();
	for (int i = 0; i < 4; i++) { /* if others were first each time, in this very moment, it is a storm */
		was = *(volatile __u64 *)bucket;
		full = was > now ? was : now;
		if (full - now >= second)
			return true;
		if (__sync_val_compare_and_swap(bucket, was, full + second / e->storm * frames_of(f)) == was)
			return false;
	}
	return true;
}
