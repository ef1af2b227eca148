/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Policers: a link that is policed takes so many bytes a second, and what exceeds that is dropped at once. Nothing
 * waits: there is no queue and no qdisc. Each direction has its policer, the meter of the port by which frames enter
 * the link. In the terms of RFC 2697, its rate is the committed information rate and its burst the committed burst
 * size; there is no excess burst. A frame passes while the bucket is not empty, also a super-frame that is longer than
 * the burst: the bucket then owes the rest (meter.h).
 *
 * Programs of tc take a frame's tokens where it crosses the link (link.h). Programs of XDP may have to leave the frame
 * to those of tc, as it came: they note that a link is policed, and take the tokens of all links on the way when the
 * frame is certain to leave (admit_all() in xdp.h). So each policer counts a frame once.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"
#include "meter.h"
#include "needs.h"
#include "ports.h"

/* A super-frame counts for all the frames that it stands for, each with headers of its own. */
static __always_inline __u64 bytes_of(const struct frame *f)
{
	return f->length + (frames_of(f) - 1) * (f->longest - f->segment);
}

/*
 * May the frame enter the link that begins at the port? If so, its tokens are taken. Buckets of links are small and
 * fast: their clock is the fine one, which links without a policer do not read.
 */
__noinline int admit(struct frame *f, __u32 port)
{
	__u32 number = FIRST_POLICER + port;
	struct meter *m;

	if (!with_policers || !f)
		return true;
	m = bpf_map_lookup_elem(&meters, &number);
	return !m || conforms(m, frames_of(f), bytes_of(f), bpf_ktime_get_ns());
}

/* The frame enters the link in any case, and its tokens are taken. Returns CONTINUE. */
__noinline int charge(struct frame *f, __u32 port)
{
	__u32 number = FIRST_POLICER + port;
	struct meter *m;

	if (!with_policers || !f)
		return CONTINUE;
	m = bpf_map_lookup_elem(&meters, &number);
	if (m && m->per_byte)
		owe_tokens(&m->bytes_full, m->per_byte * bytes_of(f) >> METER_SCALE, bpf_ktime_get_ns());
	return CONTINUE;
}

/* Gives back what admit() has taken: the frame has not left, and comes to the link again in another shape. */
__noinline int give_back(struct frame *f, __u32 port)
{
	__u32 number = FIRST_POLICER + port;
	struct meter *m;

	if (!with_policers || !f)
		return 0;
	m = bpf_map_lookup_elem(&meters, &number);
	if (m && m->per_byte)
		take_back(&m->bytes_full, m->per_byte * bytes_of(f) >> METER_SCALE);
	return 0;
}
