/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counters of each port, by ifindex, one copy per CPU. Record 0 is for frames of unknown ports.
 *
 * A frame is counted as the kernel counts it for a device: a GSO super-frame once, with its own length.
 */
#pragma once

#include "fib.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"

struct traffic {
	__u64 frames;
	__u64 bytes; /* with the Ethernet header */
};

/* What the kernel does not count for us: all frames that a node sends are in the port's device's own statistics. */
struct counters {
	struct traffic handed;	   /* to the node, past the port's device */
	/* Through a router, whose kernel did not see them, or to a packet program: here they came in, */
	struct traffic walked_in;
	struct traffic walked_out; /* and here they went out */
	struct traffic emerged;	   /* out of the tunnel that begins here, past the port's device */
	__u64 dropped[REASONS];	   /* frames from the node, by reason */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

/* Frames that the fast path handed to a router's kernel, by router id, one copy per CPU. */
struct punted {
	__u64 frames[PUNTS]; /* by enum punt */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROUTERS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct punted);
} punts SEC(".maps");

static __always_inline void count_handed(__u32 port, __u32 bytes)
{
	struct counters *c = bpf_map_lookup_elem(&counts, &port);

	if (!c)
		return;
	c->handed.frames++;
	c->handed.bytes += bytes;
}

static __always_inline void count_emerged(__u32 port, __u32 bytes)
{
	struct counters *c = bpf_map_lookup_elem(&counts, &port);

	if (!c)
		return;
	c->emerged.frames++;
	c->emerged.bytes += bytes;
}

static __always_inline void count_walked_in(__u32 port, __u32 bytes)
{
	struct counters *c = bpf_map_lookup_elem(&counts, &port);

	if (!c)
		return;
	c->walked_in.frames++;
	c->walked_in.bytes += bytes;
}

static __always_inline void count_walked_out(__u32 port, __u32 bytes)
{
	struct counters *c = bpf_map_lookup_elem(&counts, &port);

	if (!c)
		return;
	c->walked_out.frames++;
	c->walked_out.bytes += bytes;
}

/*
 * This and count_dropped() are functions of their own: where registers are short, the reason would be tested, put on
 * the stack and read again, and Linux 6.1 does not know there what was tested.
 */
__noinline int count_punted(__u32 router, __u32 why)
{
	struct punted *p = bpf_map_lookup_elem(&punts, &router);

	if (p && why < PUNTS)
		p->frames[why]++;
	return 0;
}

static __always_inline void count_punt(__u32 router, enum punt why)
{
	count_punted(router, why);
}

__noinline int count_dropped(__u32 port, __u32 why)
{
	struct counters *c;

	if (why == REASON_UNKNOWN_PORT)
		port = 0;
	c = bpf_map_lookup_elem(&counts, &port);
	if (c && why < REASONS)
		c->dropped[why]++;
	return 0;
}

static __always_inline void count_drop(__u32 port, enum reason why)
{
	count_dropped(port, why);
}
