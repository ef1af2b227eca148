/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reservations: what a flow has of the links on its way. Where it begins, a token bucket tells the frames that are
 * within it from those that exceed it (RFC 2211, 2.3: these are best effort, or dropped by choice). The first ones have
 * the traffic class RESERVED_CLASS on their labels; behind a router that has an LSP with a reservation (LABEL_RESERVED)
 * it says that the frame is one of them, so that no other router needs a meter.
 *
 * What is within its reservation waits in a class of its own where a link has a queue (class.h), and is not dropped by
 * a link's policer (link.h).
 * docs/decisions/033-reservations-are-policed-at-the-ingress.md has the reasons.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "meter.h"
#include "needs.h"
#include "police.h"

#define MAX_RESERVATIONS 262144
#define RESERVED_CLASS 5u /* datapath.ReservedClass; the code point of expedited forwarding has it as precedence */

enum excess { /* what becomes of frames that exceed a reservation */
	EXCESS_DEMOTED = 0,
	EXCESS_DROPPED,
};

struct reservation {
	struct meter meter;
	__u64 frames, bytes; /* that were within it, */
	__u64 excess_frames, excess_bytes; /* and that exceeded it */
	__u64 time;   /* ns of processor time that the walks of both have taken from here on */
	__u32 excess; /* enum excess */
	__u32 pad;
};

/* By label space and FTN (label_table.h): both in one number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RESERVATIONS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct reservation);
} reservations SEC(".maps");

enum measured {
	MEASURED_WITHIN,
	MEASURED_EXCESS, /* goes on as best effort */
	MEASURED_DROPPED,
	MEASURED_BY_NOBODY, /* there is no such reservation: as best effort, and it is not counted */
};

/* Frames shorter than Ethernet's shortest count as that (the minimum policed unit of RFC 2212): they are work, too. */
#define MIN_POLICED 64

static __always_inline __u64 reserved_bytes(const struct frame *f, __u32 more)
{
	__u64 frames = frames_of(f), bytes = bytes_of(f) + frames * more;

	return bytes < frames * MIN_POLICED ? frames * MIN_POLICED : bytes;
}

/*
 * Is the frame, which is about to get so many bytes longer, within the reservation? If so, its tokens are taken. One
 * that is not there has nothing. Returns an enum measured.
 */
__noinline int measure(struct frame *f, __u64 number, __u32 more)
{
	struct reservation *r;
	__u64 frames, bytes;

	if (!with_mpls || !f)
		return MEASURED_BY_NOBODY;
	r = bpf_map_lookup_elem(&reservations, &number);
	if (!r)
		return MEASURED_BY_NOBODY;
	frames = frames_of(f);
	bytes = reserved_bytes(f, more);
	if (conforms(&r->meter, frames, bytes, coarse_clock(f))) { /* buckets hold 100 ms */
		__sync_fetch_and_add(&r->frames, frames);
		__sync_fetch_and_add(&r->bytes, bytes);
		return MEASURED_WITHIN;
	}
	__sync_fetch_and_add(&r->excess_frames, frames);
	__sync_fetch_and_add(&r->excess_bytes, bytes);
	return r->excess == EXCESS_DROPPED ? MEASURED_DROPPED : MEASURED_EXCESS;
}

/* The reservation pays for the walk since it measured the frame. */
__noinline int pay_for_walk(__u64 number, __u64 began)
{
	struct reservation *r;

	if (!with_mpls)
		return 0;
	r = bpf_map_lookup_elem(&reservations, &number);
	if (r)
		__sync_fetch_and_add(&r->time, end_sample(began));
	return 0;
}

/*
 * Takes back what measure() has noted: the frame has not left, and comes again in another shape. If the reservation was
 * written meanwhile, its bucket is full, and nothing is to be given back.
 */
__noinline int forget_measure(__u64 number, bool within, __u64 frames, __u64 bytes)
{
	struct reservation *r;

	if (!with_mpls)
		return 0;
	r = bpf_map_lookup_elem(&reservations, &number);
	if (!r)
		return 0;
	if (!within) {
		take_back(&r->excess_frames, frames);
		take_back(&r->excess_bytes, bytes);
		return 0;
	}
	take_back(&r->frames, frames);
	take_back(&r->bytes, bytes);
	take_back(&r->meter.bytes_full, r->meter.per_byte * bytes >> METER_SCALE);
	return 0;
}
