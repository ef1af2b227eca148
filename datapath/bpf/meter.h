/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Meters: how many frames and bytes a second something takes, by two token buckets. Each bucket is kept as one
 * number, the time when it would be full again (the virtual scheduling algorithm of ITU-T I.371, GCRA), so all CPUs
 * share it without a lock. A meter does not delay: what it refuses is dropped or left to a queue, as its user
 * decides.
 *
 * Each port has two: the first MAX_PORTS meters are for storm control of the tunnel that begins at the port (storm.h),
 * the others are policers of the link that begins there (police.h).
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "ports.h"

#define FIRST_POLICER MAX_PORTS /* datapath.firstPolicer */
#define MAX_METERS (2 * MAX_PORTS)
#define METER_SCALE 16 /* costs are in ns << METER_SCALE, so that 100 Gbit/s is metered to 0.02 % */

struct meter {
	__u64 per_frame; /* what a frame takes of its bucket; 0: frames are not bounded */
	__u64 per_byte;	 /* what a byte takes of its bucket; 0: bytes are not bounded */
	__u64 depth;	 /* ns: what a full bucket holds */
	__u64 frames_full, bytes_full; /* when each bucket would be full again: ns, by the clock of the caller */
	/* Of a policer, bytes a second and bytes: user space reads back what per_byte and depth were made from. */
	__u64 rate, burst;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_METERS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct meter);
} meters SEC(".maps");

/* Takes so much (ns) out of a bucket, unless it is empty. The last to get something may leave a debt. */
static __always_inline bool take_tokens(__u64 *bucket, __u64 depth, __u64 cost, __u64 now)
{
	__u64 was, full;

	for (int i = 0; i < 4; i++) { /* after four lost races, treat as over the limit */
		was = *(volatile __u64 *)bucket;
		full = was > now ? was : now;
		if (full - now >= depth)
			return false;
		if (__sync_val_compare_and_swap(bucket, was, full + cost) == was)
			return true;
	}
	return false;
}

/* Takes so much (ns), whatever is in the bucket: it owes the rest. */
static __always_inline void owe_tokens(__u64 *bucket, __u64 cost, __u64 now)
{
	__u64 was;

	for (int i = 0; i < 4; i++) {
		was = *(volatile __u64 *)bucket;
		if (__sync_val_compare_and_swap(bucket, was, (was > now ? was : now) + cost) == was)
			return;
	}
	__sync_fetch_and_add(bucket, cost);
}

/*
 * Takes so much off a bucket or a counter again. Not where there is less: then user space has written it meanwhile, and
 * it begins anew.
 */
static __always_inline void take_back(__u64 *of, __u64 much)
{
	__u64 was;

	for (int i = 0; i < 4; i++) {
		was = *(volatile __u64 *)of;
		if (was < much || __sync_val_compare_and_swap(of, was, was - much) == was)
			return;
	}
	__sync_fetch_and_add(of, -much); /* what so many change at once is not new */
}

/*
 * Processor time. Reading the clock costs as much as a hop, so one frame in SAMPLES is measured, and counts for all of
 * them.
 */
#define SAMPLES 16
#define LONGEST_SAMPLE 64000 /* ns: the processor may have been taken away meanwhile */

/* When the frame begins, if it is measured: ns; else 0. Packet programs could foresee it (sample.h). */
static __always_inline __u64 begin_sample(void)
{
	return bpf_get_prandom_u32() % SAMPLES ? 0 : bpf_ktime_get_ns();
}

/* ns that the frame has taken since then, and those for which it stands. */
static __always_inline __u64 end_sample(__u64 begun)
{
	__u64 took = bpf_ktime_get_ns() - begun;

	return (took < LONGEST_SAMPLE ? took : LONGEST_SAMPLE) * SAMPLES;
}

/* Is there room for so many frames of so many bytes in all? If so, they are taken. now: ns of a monotonic clock. */
static __always_inline bool conforms(struct meter *m, __u64 frames, __u64 bytes, __u64 now)
{
	if (m->per_frame && !take_tokens(&m->frames_full, m->depth, m->per_frame * frames >> METER_SCALE, now))
		return false;
	return !m->per_byte || take_tokens(&m->bytes_full, m->depth, m->per_byte * bytes >> METER_SCALE, now);
}
