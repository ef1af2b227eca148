/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which frames are measured (fastpath.h). A slice must not foresee it. The kernel's bpf_get_prandom_u32() will not do:
 * packet programs read the same generator (pergola_random()), whose state follows from what it gives.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "fastpath.h"

/* Random, other ones for each load of a node's program: the loader writes them, and no slice can read them. */
const volatile __u64 sample_secrets[2];

/*
 * Is the frame of this number, of those that asked for processor time on this CPU, measured? No number comes twice:
 * frames that XDP hands over, to be copied, are not counted as having come (copy_xdp()), and are measured. It is the
 * output of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014) with a state and
 * an increment that are secret.
 */
static __always_inline bool is_sampled(__u64 number)
{
	__u64 x = number ^ (__u64)bpf_get_smp_processor_id() << 40;

	x = sample_secrets[0] + x * (sample_secrets[1] | 1);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x >> 32) % SAMPLES == 0;
}
