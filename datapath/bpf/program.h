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
 * This file does not know what kind of program it is in: program_xdp.h and program_skb.h load and store.
 * docs/decisions/012-packet-programs.md has the reasons and the measurements.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "../program/include/pergola/program.h"

/* Why the platform dropped a frame that the program meant to send. */
enum program_fault {
	PROGRAM_OK = 0,
	PROGRAM_BAD_VERDICT, /* no verdict, or none that this stage may return */
	PROGRAM_BAD_START,   /* grown or shrunk beyond the window */
	PROGRAM_TOO_SHORT,   /* what is left is no frame */
	PROGRAM_NO_ROOM,     /* no memory to grow into */
	PROGRAM_NOT_PLAIN,   /* tc: a super-frame, or a VLAN tag beside the frame: a device has to make it plain first */
	PROGRAM_NO_SHRINK,   /* tc: the kernel shortens IP packets alone */
	PROGRAM_FAULTS,
};

/* Put the enums into the object's BTF; nothing uses these. */
enum program_fault *program_fault_names __attribute__((unused));
enum pergola_verdict *pergola_verdict_names __attribute__((unused));

/* Where a frame came from. */
struct program_input {
	__u32 interface;
	__u16 outer_port;
	__u16 pad;
	__u64 interfaces;
	__u64 time; /* 0: now */
	__u8 outer_address[16];
};

/* What becomes of the frame, after all checks. */
struct program_outcome {
	__u32 verdict; /* enum pergola_verdict */
	enum program_fault fault;
	__u32 matched; /* number of the filter, from 1; 0: none, or no lookup */
	__s32 start;
	__u32 length; /* of the frame that leaves */
	__u32 output;
	__u32 queue;
	__u32 flow;
	__u32 reason;
	__u16 port;
	__u16 pad;
	__u64 flood;
	__u8 address[16];
};

struct program_scratch {
	__u64 words[PERGOLA_SCRATCH_SIZE / 8];
};

/* One for each CPU and slice (frame.h says why none is overwritten): a slice never sees memory of another one. */
struct program_record {
	struct pergola_packet packet; /* first: its window may be read beyond its end, into the rest */
	struct pergola_result result;
	struct program_scratch scratch;
	struct program_outcome outcome;
	__u64 end;
};

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

/* How much scratch memory the slice's code has; the loader writes it. */
const volatile __u32 scratch_size = PERGOLA_SCRATCH_SIZE;

enum program_stage {
	STAGE_LOAD = 1,
	STAGE_PARSE,
	STAGE_LOOKUP,
	STAGE_FORMAT,
	STAGE_STORE,
};

enum program_stage *program_stage_names __attribute__((unused));

/* The last stage that frames go through: fewer, to measure each (datapath/program/profile.go). */
const volatile __u32 last_stage = STAGE_STORE;

__weak int pergola_parse(struct pergola_packet *packet, struct program_scratch *scratch)
{
	return packet && scratch ? PERGOLA_LOOKUP : PERGOLA_DROP;
}

__weak int pergola_format(struct pergola_packet *packet, struct pergola_result *result, struct program_scratch *scratch)
{
	return packet && result && scratch ? result->verdict : PERGOLA_DROP;
}

/* Filters, in the order of their priority. */
struct program_filter {
	__u64 want[PERGOLA_KEY_SIZE / 8]; /* without bits that are not in the mask */
	__u64 mask[PERGOLA_KEY_SIZE / 8];
	__u32 table;
	__u32 used;
	struct pergola_result result;
};

#define PROGRAM_FILTERS 64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROGRAM_FILTERS);
	__type(key, __u32);
	__type(value, struct program_filter);
} program_filters SEC(".maps");

static __always_inline bool is_match(const struct program_filter *f, const __u64 *key)
{
	__u64 differs = 0;

	for (int i = 0; i < PERGOLA_KEY_SIZE / 8; i++)
		differs |= (key[i] & f->mask[i]) ^ f->want[i];
	return !differs;
}

/* Copies the result of the first filter that matches into the record. Returns its number, from 1; 0: none. */
__noinline int find_filter(struct program_record *r)
{
	const struct program_filter *f;
	__u32 index; /* the verifier does not follow numbers whose address is taken */

	if (!r)
		return 0;
	for (__u32 i = 0; i < PROGRAM_FILTERS; i++) {
		index = i;
		f = bpf_map_lookup_elem(&program_filters, &index);
		if (!f || !f->used)
			break;
		if (f->table == r->packet.table && is_match(f, (const __u64 *)r->packet.key)) {
			r->result = f->result;
			return i + 1;
		}
	}
	r->result = (struct pergola_result){};
	return 0;
}

/* The packet has been loaded: its window, its length and what of the window is its own are there. */
static __always_inline void begin_program(struct program_record *r, const struct program_input *in)
{
	struct pergola_packet *p = &r->packet;

	p->interface = in->interface;
	p->interfaces = in->interfaces;
	p->time = in->time;
	__builtin_memcpy(p->outer_address, in->outer_address, sizeof(p->outer_address));
	p->outer_port = in->outer_port;
	p->start = 0;
	p->table = 0;
	p->output = 0;
	p->queue = 0;
	p->flow = 0;
	p->reason = 0;
	p->miss = PERGOLA_PUNT;
	p->flood = 0;
	__builtin_memset(p->address, 0, sizeof(p->address));
	p->port = 0;
	__builtin_memset(p->key, 0, sizeof(p->key));
	for (__u32 i = 0; i < PERGOLA_SCRATCH_SIZE / 8; i++)
		if (i * 8 < scratch_size)
			r->scratch.words[i] = 0;
	r->outcome.matched = 0;
}

static __always_inline bool is_final(__u32 verdict) { return verdict <= PERGOLA_PUNT && verdict != PERGOLA_LOOKUP; }

static __always_inline bool leaves(__u32 verdict)
{
	return verdict == PERGOLA_SEND || verdict == PERGOLA_FLOOD || verdict == PERGOLA_UDP;
}

/* parse, lookup, format. Returns a verdict that is not checked yet. */
static __always_inline __u32 run_stages(struct program_record *r)
{
	struct pergola_packet *p = &r->packet;
	__u32 verdict;

	if (last_stage < STAGE_PARSE)
		return PERGOLA_DROP;
	verdict = pergola_parse(p, &r->scratch);
	if (verdict != PERGOLA_LOOKUP)
		return verdict;
	if (last_stage < STAGE_LOOKUP)
		return PERGOLA_DROP;
	r->outcome.matched = find_filter(r);
	verdict = r->outcome.matched ? r->result.verdict : p->miss;
	if (!leaves(verdict))
		return verdict;
	r->result.verdict = verdict;
	p->output = r->result.interface;
	p->queue = r->result.queue;
	p->port = r->result.port;
	if (verdict == PERGOLA_FLOOD)
		p->flood = r->result.flood;
	else
		__builtin_memcpy(p->address, r->result.address, sizeof(p->address));
	if (last_stage < STAGE_FORMAT)
		return PERGOLA_DROP;
	return pergola_format(p, &r->result, &r->scratch);
}

static __always_inline enum program_fault check_length(const struct program_record *r, __u32 length, __s32 start)
{
	if (start < -PERGOLA_HEADROOM || start > PERGOLA_WINDOW || start > (__s32)length)
		return PROGRAM_BAD_START;
	if (r->outcome.verdict != PERGOLA_UDP && (__s32)length - start < ETH_HLEN)
		return PROGRAM_TOO_SHORT;
	return PROGRAM_OK;
}

/* Takes from the packet what becomes of the frame. length: of the frame that came. */
static __always_inline void conclude(struct program_record *r, __u32 verdict, __u32 length)
{
	const struct pergola_packet *p = &r->packet;
	struct program_outcome *o = &r->outcome;

	o->verdict = verdict;
	o->fault = PROGRAM_OK;
	o->output = p->output;
	o->queue = p->queue;
	o->flow = p->flow;
	o->reason = p->reason;
	o->flood = p->flood;
	o->port = p->port;
	__builtin_memcpy(o->address, p->address, sizeof(o->address));
	o->start = 0;
	o->length = length;
	if (!is_final(verdict))
		o->fault = PROGRAM_BAD_VERDICT;
	if (!leaves(verdict))
		return;
	o->start = p->start;
	o->fault = check_length(r, length, o->start);
	o->length = length - o->start;
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

/*
 * Copies the frame's first `n` bytes (an Ethernet header or more) into the window, if they lie between these two
 * pointers, and fills the window up with zeros. A helper's call and its string copy cost 20 ns (header.h).
 */
static __always_inline bool fill_window(struct pergola_packet *p, const void *data, const void *end, __u64 n)
{
	__u8 *window = p->window + PERGOLA_HEADROOM;
	program_word *words = (program_word *)(window + WORDS_FROM);
	const program_word *from = data + WORDS_FROM;
	const __u32 last = WORDS_FROM + WINDOW_WORDS * 8;

	if (data + PERGOLA_WINDOW <= end) {
		__builtin_memcpy(window, __builtin_assume_aligned(data, 2), ETH_ALEN);
		for (__u32 i = 0; i < WINDOW_WORDS; i++)
			words[i] = from[i];
		*(__u16 *)(window + last) = *(const __u16 *)(data + last);
		return true;
	}
	if (data + ETH_HLEN > end)
		return false;
	__builtin_memcpy(window, __builtin_assume_aligned(data, 2), ETH_ALEN);
	for (__u32 i = 0; i < WINDOW_WORDS; i++)
		words[i] = 0;
	*(__u16 *)(window + last) = 0;
	n -= WORDS_FROM;
	return copy_block(window, data, end, n, 128) && copy_block(window, data, end, n, 64) &&
	       copy_block(window, data, end, n, 32) && copy_block(window, data, end, n, 16) &&
	       copy_block(window, data, end, n, 8) && copy_block(window, data, end, n, 4) &&
	       copy_block(window, data, end, n, 2) && copy_block(window, data, end, n, 1);
}

/* How many bytes of a frame of this length are in the window; 0: it is no frame. */
static __always_inline __u64 window_length(__u64 length)
{
	asm volatile("" : "+r"(length)); /* as header_length() */
	if (length > PERGOLA_WINDOW)
		return PERGOLA_WINDOW;
	return length < ETH_HLEN ? 0 : length;
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
