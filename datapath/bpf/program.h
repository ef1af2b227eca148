/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packet programs: a frame's way through a node whose code is a slice's own.
 *
 *	load -> parse -> look up -> format -> store
 *
 * pergola_parse() and pergola_format() are the slice's: the loader (datapath/program) puts them in the place of the
 * weak functions here. They have no context and no pointer to the frame. What they get is memory of the platform: the
 * frame's first bytes in a window, and what is known of the frame. What they leave there is looked at as input from
 * outside: every number is checked before it is used, and lengths are never read back.
 *
 * The stages themselves are in pergola/stages.h, which user space compiles, too. This file does not know what kind of
 * program it is in: program_xdp.h and program_skb.h load and store.
 * docs/decisions/012-packet-programs.md has the reasons and the measurements.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "filter.h"
#include "../program/include/pergola/program.h"

/* How much scratch memory the slice's code has, and the last stage that frames go through; the loader writes them. */
const volatile __u32 scratch_size = PERGOLA_SCRATCH_SIZE;
const volatile __u32 last_stage = 5; /* STAGE_STORE */

/*
 * How far the slice's code reads and writes: bytes of the frame in the window, 0 or as many as an Ethernet header and
 * more, and bytes of the key. The loader finds out. What is behind is neither loaded, nor zeroed, nor stored.
 */
const volatile __u32 window_reach = PERGOLA_WINDOW;
const volatile __u32 key_reach = PERGOLA_KEY_SIZE;

#define PERGOLA_CALLED_ __noinline
#include "../program/include/pergola/stages.h"

/* Put the types into the object's BTF; nothing uses these. */
struct program_filter *program_filter_type __attribute__((unused));
enum program_fault *program_fault_names __attribute__((unused));
enum program_stage *program_stage_names __attribute__((unused));
enum pergola_verdict *pergola_verdict_names __attribute__((unused));

#define PROGRAM_BYTES (PERGOLA_HEADROOM + PERGOLA_WINDOW)
_Static_assert(offsetof(struct program_record, end) - offsetof(struct pergola_packet, window) >= 2 * PROGRAM_BYTES,
	       "a copy of any length from any place of the window stays in the record");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program_record);
} program_records SEC(".maps");

static __always_inline struct program_record *find_program_record(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&program_records, &zero);
}

__weak int pergola_parse(struct pergola_packet *packet, struct program_scratch *scratch)
{
	return packet && scratch ? PERGOLA_LOOKUP : PERGOLA_DROP;
}

__weak int pergola_format(struct pergola_packet *packet, struct pergola_result *result, struct program_scratch *scratch)
{
	return packet && result && scratch ? result->verdict : PERGOLA_DROP;
}

_Static_assert(sizeof(struct filter_match) == sizeof(struct program_match) &&
		       sizeof(struct filter_result) == sizeof(struct pergola_result) &&
		       offsetof(struct filter_match, version) == offsetof(struct program_match, version) &&
		       offsetof(struct filter_match, rank) == offsetof(struct program_match, rank) &&
		       sizeof(struct filter_key) == PERGOLA_KEY_SIZE,
	       "the same in both");

PERGOLA_INLINE_ uint32_t find_filter(struct program_record *r, __u32 table)
{
	struct filter_match *m = (struct filter_match *)&r->match;

	filter_lookup(table, (const struct filter_key *)r->packet.key, m);
	return m->filter;
}

PERGOLA_INLINE_ uint32_t find_next_filter(struct program_record *r, __u32 table)
{
	struct filter_match *m = (struct filter_match *)&r->match;

	filter_find(table, (const struct filter_key *)r->packet.key, m);
	return m->filter;
}

typedef __u64 __attribute__((may_alias)) program_word;

/* Where the window's words begin: behind the destination's address, so that each field of what follows lies in one. */
#define WORDS_FROM ETH_ALEN
#define WINDOW_WORDS ((PERGOLA_WINDOW - WORDS_FROM) / 8)

/*
 * Copies the block of so many bytes (a power of two) that a copy of `left` bytes has by its binary digits: the longest
 * first. Where a block begins follows from the digits above its own, so the verifier has the same state before each
 * block, whichever were copied, and looks at each once. False: that much is not there.
 */
static __always_inline bool copy_block(__u8 *window, const void *data, const void *end, __u64 left, __u32 size)
{
	__u64 at = WORDS_FROM + (left & ~(__u64)(2 * size - 1) & 0xff);
	const void *from = data + at;
	void *to = window + at;

	if (!(left & size))
		return true;
	if (from + size > end)
		return false;
	switch (size) {
	case 1:
		*(__u8 *)to = *(const __u8 *)from;
		break;
	case 2:
		*(__u16 *)to = *(const __u16 *)from;
		break;
	case 4:
		*(__u32 *)to = *(const __u32 *)from;
		break;
	default:
		for (__u32 i = 0; i < size / 8; i++)
			((program_word *)to)[i] = ((const program_word *)from)[i];
	}
	return true;
}

/* So many bytes of the window are loaded and stored: whole words. */
static __always_inline __u64 window_filled(void)
{
	__u64 reach = window_reach;

	if (reach <= WORDS_FROM)
		return reach;
	if (reach > WORDS_FROM + WINDOW_WORDS * 8)
		return PERGOLA_WINDOW;
	return WORDS_FROM + ((reach - WORDS_FROM + 7) & ~7ull);
}

/*
 * Copies the frame's first `n` bytes (an Ethernet header or more, and no more than are to be filled) into the window,
 * if they lie between these two pointers, and fills it up with zeros. A helper's call and its string copy cost 20 ns
 * (header.h). The verifier knows `filled`, and leaves out what is behind it.
 */
static __always_inline bool fill_window(struct pergola_packet *p, const void *data, const void *end, __u64 n,
					__u64 filled)
{
	__u8 *window = p->window + PERGOLA_HEADROOM;
	program_word *words = (program_word *)(window + WORDS_FROM);
	const program_word *from = data + WORDS_FROM;
	const __u32 last = WORDS_FROM + WINDOW_WORDS * 8;

	if (data + filled <= end) {
		__builtin_memcpy(window, __builtin_assume_aligned(data, 2), ETH_ALEN);
		for (__u32 i = 0; i < WINDOW_WORDS && WORDS_FROM + i * 8 < filled; i++)
			words[i] = from[i];
		if (last < filled)
			*(__u16 *)(window + last) = *(const __u16 *)(data + last);
		return true;
	}
	for (__u32 i = 0; i < WINDOW_WORDS && WORDS_FROM + i * 8 < filled; i++)
		words[i] = 0;
	if (last < filled)
		*(__u16 *)(window + last) = 0;
	if (data + ETH_HLEN > end)
		return false;
	__builtin_memcpy(window, __builtin_assume_aligned(data, 2), ETH_ALEN);
	n -= WORDS_FROM;
	return copy_block(window, data, end, n, 128) && copy_block(window, data, end, n, 64) &&
	       copy_block(window, data, end, n, 32) && copy_block(window, data, end, n, 16) &&
	       copy_block(window, data, end, n, 8) && copy_block(window, data, end, n, 4) &&
	       copy_block(window, data, end, n, 2) && copy_block(window, data, end, n, 1);
}

/* Writes the window's first bytes back, if the frame has them between these two pointers. */
static __always_inline bool write_window(const struct pergola_packet *p, void *data, const void *end, __u64 filled)
{
	const __u8 *window = p->window + PERGOLA_HEADROOM;
	const program_word *words = (const program_word *)(window + WORDS_FROM);
	program_word *to = data + WORDS_FROM;
	const __u32 last = WORDS_FROM + WINDOW_WORDS * 8;

	if (filled < ETH_HLEN || data + filled > end)
		return false;
	__builtin_memcpy(__builtin_assume_aligned(data, 2), window, ETH_ALEN);
	for (__u32 i = 0; i < WINDOW_WORDS && WORDS_FROM + i * 8 < filled; i++)
		to[i] = words[i];
	if (last < filled)
		*(__u16 *)(data + last) = *(const __u16 *)(window + last);
	return true;
}

/* How many bytes of a frame of this length are in the window; 0: it is no frame. */
static __always_inline __u64 window_length(__u64 length)
{
	asm volatile("" : "+r"(length)); /* as header_length() */
	if (length > PERGOLA_WINDOW)
		return PERGOLA_WINDOW;
	return length < ETH_HLEN ? 0 : length;
}

/* How many of them are loaded, and stored. */
static __always_inline __u64 filled_length(__u64 n, __u64 filled)
{
	if (n > filled)
		n = filled;
	asm volatile("" : "+r"(n)); /* as header_length() */
	return n;
}

/* Is a length from 1 to PROGRAM_BYTES? Linux 6.1 does not see that one that is not 0 is at least 1. */
static __always_inline bool bound(__u64 *length)
{
	__u64 n = *length - 1;

	asm volatile("" : "+r"(n)); /* as header_length() */
	if (n >= PROGRAM_BYTES)
		return false;
	n++;
	asm volatile("" : "+r"(n));
	*length = n;
	return true;
}
