/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packet programs in XDP: frames grow and shrink as they like.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "program.h"

/* Loads the window. Returns the frame's length; 0: it cannot be read. */
__noinline __u32 load_xdp(struct xdp_md *ctx, struct program_record *r)
{
	__u64 n, filled = window_filled();
	__u32 length;

	if (!r)
		return 0;
	length = bpf_xdp_get_buff_len(ctx);
	n = window_length(length);
	if (n < ETH_HLEN)
		return 0;
	r->packet.length = length;
	r->packet.loaded = n;
	n = filled_length(n, filled);
	if (n < ETH_HLEN) /* the program does not look at the frame */
		return length;
	if (fill_window(&r->packet, (void *)(long)ctx->data, (void *)(long)ctx->data_end, n, filled))
		return length;
	return bpf_xdp_load_bytes(ctx, 0, r->packet.window + PERGOLA_HEADROOM, n) ? 0 : length;
}

/* Makes the frame what the window says. length: of the frame that came. Returns an enum program_fault. */
__noinline int store_xdp(struct xdp_md *ctx, struct program_record *r, __u32 length)
{
	__u64 at, n;
	__s32 start;

	if (!r)
		return PROGRAM_BAD_START;
	start = r->outcome.start;
	if (!start && write_window(&r->packet, (void *)(long)ctx->data, (void *)(long)ctx->data_end, window_filled()))
		return PROGRAM_OK;
	if (start && bpf_xdp_adjust_head(ctx, start))
		return PROGRAM_NO_ROOM;
	at = (__s64)PERGOLA_HEADROOM + start;
	n = filled_length(window_length(length), window_filled()) - start;
	asm volatile("" : "+r"(at)); /* as header_length() */
	if (at > PROGRAM_BYTES)
		return PROGRAM_BAD_START;
	if (bound(&n) && bpf_xdp_store_bytes(ctx, 0, r->packet.window + at, n))
		return PROGRAM_NO_ROOM;
	return PROGRAM_OK;
}

/* All stages. The outcome is in the record. */
static __always_inline void run_xdp(struct xdp_md *ctx, struct program_record *r, const struct program_input *in)
{
	__u32 length = load_xdp(ctx, r), verdict;

	if (!length) {
		r->outcome.verdict = PERGOLA_DROP;
		r->outcome.fault = PROGRAM_TOO_SHORT;
		return;
	}
	begin_program(r, in);
	verdict = run_stages(r, in);
	conclude(r, verdict, length);
	if (last_stage >= STAGE_STORE && leaves(verdict) && r->outcome.fault == PROGRAM_OK)
		r->outcome.fault = store_xdp(ctx, r, length);
}
