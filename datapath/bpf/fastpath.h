/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Processor time of packet programs: how much of it each slice has on this host, and what it took.
 *
 * A slice that reserves time has a bucket of its own. All slices share the pool, for what they want beyond that: what
 * is reserved never pays for the pool, and the pool never has more than is left. A frame for which neither bucket has
 * time is dropped before anything of it has been read (node.c).
 *
 * Reading the clock costs more than a stage of a program. So one frame in SAMPLES is measured, at random, and counts
 * for all of them: the sum is right on average, and no slice knows which of its frames is measured (sample.h).
 * docs/decisions/016-processor-time.md has the reasons and the measurements.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "meter.h"

#define MAX_SLICES 4096 /* slice.MaxID + 1 */
#define FASTPATH_POOL 0 /* no slice has this number */
#define SAMPLES 16
#define LONGEST_SAMPLE 64000 /* ns: the processor may have been taken away meanwhile */

/* By slice, each in a cache line of its own. User space writes cost and depth. */
struct fastpath_time {
	/* ns of the bucket for a ns of processor time, << METER_SCALE. 0: nothing is reserved; the pool: no bound. */
	__u64 cost;
	__u64 depth; /* ns: what a full bucket holds; more than the coarse clock moves at once */
	__u64 full;  /* when the bucket would be full again, by the coarse clock */
	__u64 copies; /* when the bucket of copies would be full again (node.c) */
	__u64 pad[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLICES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct fastpath_time);
} fastpath_times SEC(".maps");

struct fastpath_use {
	__u64 ns;      /* of processor time */
	__u64 metered; /* frames dropped because there was none */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SLICES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct fastpath_use);
} fastpath_spent SEC(".maps");

static __always_inline struct fastpath_time *find_time(__u32 slice)
{
	return bpf_map_lookup_elem(&fastpath_times, &slice);
}

/* The work on one frame. */
struct work {
	struct fastpath_time *payer;
	__u64 began; /* ns by the fine clock; 0: it is not measured */
};

static __always_inline bool has_time(const struct fastpath_time *t, __u64 now)
{
	__u64 full = *(const volatile __u64 *)&t->full;

	return full < now + t->depth;
}

/* Who pays for the work on a frame, and is it measured? False: nobody pays, and it is to be dropped. */
static __always_inline bool begin_work(struct work *w, struct frame *f, __u32 slice, bool sampled)
{
	__u64 now = coarse_clock(f);

	w->began = 0;
	w->payer = find_time(slice);
	if (!w->payer)
		return true;
	if (!w->payer->cost || !has_time(w->payer, now)) {
		w->payer = find_time(FASTPATH_POOL);
		if (w->payer && w->payer->cost && !has_time(w->payer, now))
			return false;
	}
	if (sampled)
		w->began = bpf_ktime_get_ns();
	return true;
}

/* Takes the time since the work began, or since this was called before. */
static __always_inline void pay_work(struct work *w, struct frame *f, __u32 slice)
{
	struct fastpath_time *t = w->payer;
	struct fastpath_use *spent;
	__u64 end, ns;

	if (!w->began)
		return;
	end = bpf_ktime_get_ns();
	ns = end - w->began;
	w->began = end;
	if (ns > LONGEST_SAMPLE)
		ns = LONGEST_SAMPLE;
	ns *= SAMPLES;
	spent = bpf_map_lookup_elem(&fastpath_spent, &slice);
	if (spent)
		spent->ns += ns;
	if (t && t->cost)
		owe_tokens(&t->full, ns * t->cost >> METER_SCALE, f->now);
}

static __always_inline void count_metered(__u32 slice)
{
	struct fastpath_use *spent = bpf_map_lookup_elem(&fastpath_spent, &slice);

	if (spent)
		spent->metered++;
}
