/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Processor time of packet programs: how much of it each slice has on this host, and what it took.
 *
 * A slice that reserves time has a bucket of its own. All slices share the pool, for what they want beyond that: what
 * is reserved never pays for the pool, and the pool never has more than is left. A slice without a reservation has a
 * share in the pool: of n of them that run, each has a part in n, and takes what others leave. A frame for which there
 * is no time is dropped before anything of it has been read (node.c).
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

#define SHARE_PERIOD 24 /* log2 ns: 17 ms, in which the coarse clock moves */
#define SHARE_DEPTH 20000000 /* ns: what a full share of the pool holds at least */

/* By slice, each in a cache line of its own. User space writes cost, depth and longest. */
struct fastpath_time {
	/* ns of the bucket for a ns of processor time, << METER_SCALE. 0: nothing is reserved; the pool: no bound. */
	__u64 cost;
	__u64 depth; /* ns: what a full bucket holds; more than the coarse clock moves at once */
	__u64 full;  /* when the bucket would be full again, by the coarse clock; without a reservation, the share's */
	__u64 copies; /* when the bucket of copies would be full again (node.c) */
	__u64 longest; /* the pool: ns that the longest measurements take of it, if it is one slice's */
	__u64 period; /* the last one that the slice has run in; the pool: that any slice has */
	__u64 running, ran; /* the pool: slices that share it, in that period and in the one before */
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

/* The work on one frame, and what a ns of it costs the slice's bucket and the pool. 0: it does not pay. */
struct work {
	__u64 own_cost, pool_cost;
	__u64 began; /* ns by the fine clock; 0: it is not measured */
};

static __always_inline bool has_time(const struct fastpath_time *t, __u64 depth, __u64 now)
{
	__u64 full = *(const volatile __u64 *)&t->full;

	return full < now + depth;
}

/* How many slices share the pool? Those that run in this period, or ran in the one before. */
static __always_inline __u64 count_sharers(struct fastpath_time *pool, struct fastpath_time *own, __u64 now)
{
	__u64 period = now >> SHARE_PERIOD, mine = own->period, last = pool->period;

	if (mine != period && __sync_val_compare_and_swap(&own->period, mine, period) == mine) {
		if (last != period && __sync_val_compare_and_swap(&pool->period, last, period) == last) {
			__u64 ran = __sync_lock_test_and_set(&pool->running, 0);

			pool->ran = last + 1 == period ? ran : 0;
		}
		__sync_fetch_and_add(&pool->running, 1);
	}
	return pool->running > pool->ran ? pool->running : pool->ran ?: 1;
}

/*
 * Is there time in the slice's share of the pool? What shares pay, the pool pays, too, so that it has for others what
 * they leave. It can owe for a moment what all shares hold together. More it owes only if slices were counted wrongly:
 * then the shares wait for it.
 */
static __always_inline bool begin_share(struct work *w, struct fastpath_time *own, struct fastpath_time *pool,
					__u64 now)
{
	__u64 sharers = count_sharers(pool, own, now);
	__u64 depth = sharers * pool->longest;

	if (depth < SHARE_DEPTH)
		depth = SHARE_DEPTH;
	w->own_cost = sharers * pool->cost;
	return has_time(own, depth, now) && has_time(pool, pool->depth + 2 * depth, now);
}

/* Who pays for work on a frame of the slice? 0: nobody. Like the next one a function that is verified once. */
__noinline int find_payer(struct work *w, __u32 slice, __u64 now)
{
	struct fastpath_time *own = find_time(slice), *pool = find_time(FASTPATH_POOL);

	if (!w || !own || !pool)
		return 0;
	w->own_cost = own->cost;
	w->pool_cost = pool->cost;
	if (w->own_cost && has_time(own, own->depth, now)) {
		w->pool_cost = 0;
	} else if (w->pool_cost && (w->own_cost || !begin_share(w, own, pool, now))) {
		if (!has_time(pool, pool->depth, now))
			return 0;
		w->own_cost = 0;
	}
	return 1;
}

__noinline int pay_time(const struct work *w, __u32 slice, __u64 ns, __u64 now)
{
	struct fastpath_time *own = find_time(slice), *pool = find_time(FASTPATH_POOL);
	struct fastpath_use *spent = bpf_map_lookup_elem(&fastpath_spent, &slice);

	if (!w || !own || !pool || !spent)
		return 0;
	if (ns > LONGEST_SAMPLE)
		ns = LONGEST_SAMPLE;
	ns *= SAMPLES;
	spent->ns += ns;
	if (w->own_cost)
		owe_tokens(&own->full, ns * w->own_cost >> METER_SCALE, now);
	if (w->pool_cost)
		owe_tokens(&pool->full, ns * w->pool_cost >> METER_SCALE, now);
	return 0;
}

/* Is there somebody to pay for the work on a frame? Else it is to be dropped. */
static __always_inline bool begin_work(struct work *w, struct frame *f, __u32 slice, bool sampled)
{
	*w = (struct work){};
	if (!find_payer(w, slice, coarse_clock(f)))
		return false;
	if (sampled)
		w->began = bpf_ktime_get_ns();
	return true;
}

/* Takes the time since the work began, or since this was called before. */
static __always_inline void pay_work(struct work *w, struct frame *f, __u32 slice)
{
	__u64 end, ns;

	if (!w->began)
		return;
	end = bpf_ktime_get_ns();
	ns = end - w->began;
	w->began = end;
	pay_time(w, slice, ns, f->now);
}

static __always_inline void count_metered(__u32 slice)
{
	struct fastpath_use *spent = bpf_map_lookup_elem(&fastpath_spent, &slice);

	if (spent)
		spent->metered++;
}
