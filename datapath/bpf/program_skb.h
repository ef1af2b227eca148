/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packet programs in tc: for frames that a node sends, as long as they are plain: not a GSO super-frame, no VLAN tag
 * beside the frame. What is not plain goes through a device that makes it so, and comes to XDP. So does one
 * whose checksum a sender has left to a network card (unfinished.h).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "program.h"
#include "shrink.h"

static __always_inline bool is_plain(const struct __sk_buff *skb) { return !skb->gso_size && !skb->vlan_present; }

/* As load_xdp(). */
__noinline __u32 load_skb(struct __sk_buff *skb, struct program_record *r)
{
	__u64 n, filled = window_filled();
	__u32 length = skb->len;

	if (!r)
		return 0;
	n = window_length(length);
	if (n < ETH_HLEN)
		return 0;
	r->packet.length = length;
	r->packet.loaded = n;
	n = filled_length(n, filled);
	if (n < ETH_HLEN)
		return length;
	if (fill_window(&r->packet, (void *)(long)skb->data, (void *)(long)skb->data_end, n, filled))
		return length;
	return bpf_skb_load_bytes(skb, 0, r->packet.window + PERGOLA_HEADROOM, n) ? 0 : length;
}

/*
 * Makes the frame begin later by so many bytes, or earlier. If the device gave a sum of the frame (CHECKSUM_COMPLETE),
 * it would be wrong afterwards, by bytes that come to stand behind the Ethernet header: such a frame is not plain.
 */
static __always_inline enum program_fault move_start(struct __sk_buff *skb, __s32 start, __u32 length)
{
	if (bpf_csum_update(skb, 0) >= 0)
		return PROGRAM_NOT_PLAIN;
	if (start < 0)
		return bpf_skb_change_head(skb, -start, 0) ? PROGRAM_NO_ROOM : PROGRAM_OK;
	return cut_front(skb, start, length) ? PROGRAM_OK : PROGRAM_NO_SHRINK;
}

/*
 * As store_xdp(). If the device gave a sum of the frame, it begins behind the Ethernet header (write_edit() in skb.h):
 * what is there is stored so that the sum follows.
 */
__noinline int store_skb(struct __sk_buff *skb, struct program_record *r, __u32 length)
{
	const __u8 *body;
	__u64 at, n;
	__s32 start;

	if (!r)
		return PROGRAM_BAD_START;
	start = r->outcome.start;
	if (start && !r->outcome.copies) { /* copies of the frame begin there already */
		enum program_fault fault = move_start(skb, start, length);

		if (fault != PROGRAM_OK)
			return fault;
	}
	at = (__s64)PERGOLA_HEADROOM + start;
	n = filled_length(window_length(length), window_filled()) - start;
	asm volatile("" : "+r"(at)); /* as header_length() */
	if (at > PROGRAM_BYTES)
		return PROGRAM_BAD_START;
	if (!bound(&n))
		return PROGRAM_OK;
	if (start || bpf_csum_update(skb, 0) < 0)
		return bpf_skb_store_bytes(skb, 0, r->packet.window + at, n, 0) ? PROGRAM_NO_ROOM : PROGRAM_OK;
	body = r->packet.window + PERGOLA_HEADROOM + ETH_HLEN;
	if (bpf_skb_store_bytes(skb, 0, body - ETH_HLEN, ETH_HLEN, 0))
		return PROGRAM_NO_ROOM;
	n -= ETH_HLEN;
	if (bound(&n) && bpf_skb_store_bytes(skb, ETH_HLEN, body, n, BPF_F_RECOMPUTE_CSUM))
		return PROGRAM_NO_ROOM;
	return PROGRAM_OK;
}

/* All stages. The outcome is in the record. */
static __always_inline void run_skb(struct __sk_buff *skb, struct program_record *r, const struct program_input *in)
{
	__u32 length = 0, verdict;

	r->outcome.verdict = PERGOLA_DROP;
	r->outcome.fault = PROGRAM_NOT_PLAIN;
	if (!is_plain(skb))
		return;
	length = load_skb(skb, r);
	if (!length) {
		r->outcome.fault = PROGRAM_TOO_SHORT;
		return;
	}
	begin_program(r, in);
	verdict = run_stages(r, in);
	conclude(r, verdict, length);
	if (last_stage >= STAGE_STORE && leaves(verdict) && r->outcome.fault == PROGRAM_OK)
		r->outcome.fault = store_skb(skb, r, length);
}
