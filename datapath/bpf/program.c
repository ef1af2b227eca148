// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Packet programs by themselves, without a network: `pergola program test` and `profile` run frames through them
 * (BPF_PROG_TEST_RUN). Where a frame came from, user space says; what becomes of it is in the record.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "program_skb.h"
#include "program_xdp.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program_input);
} program_inputs SEC(".maps");

static __always_inline const struct program_input *find_program_input(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&program_inputs, &zero);
}

/*
 * Measurements send one frame again and again: it is made anew before each run, as it came
 * (datapath/program/profile.go).
 */
const volatile __u32 rewinds = 0;

struct program_frame {
	__u64 length; /* of these bytes */
	__u8 bytes[PERGOLA_WINDOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program_frame);
} program_frames SEC(".maps");

static __always_inline bool rewind_xdp(struct xdp_md *ctx, struct program_record *r)
{
	const struct program_frame *f;
	__u32 zero = 0;
	__u64 n;

	if (!rewinds)
		return true;
	f = bpf_map_lookup_elem(&program_frames, &zero);
	if (!f)
		return false;
	if (r->outcome.start && bpf_xdp_adjust_head(ctx, -r->outcome.start))
		return false;
	r->outcome.start = 0;
	n = f->length - 1;
	asm volatile("" : "+r"(n)); /* as header_length() */
	return n < PERGOLA_WINDOW && !bpf_xdp_store_bytes(ctx, 0, (void *)f->bytes, n + 1);
}

/* What became of a frame that is copied, and of its copies. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PERGOLA_COPIES);
	__type(key, __u32);
	__type(value, struct program_record);
} program_copies SEC(".maps");

/* The callback of bpf_loop() has its pointers from maps: Linux 6.1's verifier looks at it once. */
static long make_copy(__u32 number, void *context __attribute__((unused)))
{
	const struct program_input *in = find_program_input();
	struct program_record *r = find_program_record();

	if (!in || !r || !find_copy(r, in->first_table, in->tables))
		return 1;
	number++;
	format_copy(r, number);
	bpf_map_update_elem(&program_copies, &number, r, BPF_ANY);
	return 0;
}

/* Nothing is sent: what is in the record is kept, and the frame stays that of the first call of format. */
static __always_inline void make_copies(struct program_record *r)
{
	__u32 zero = 0;

	if (!is_copied(&r->outcome))
		return;
	bpf_map_update_elem(&program_copies, &zero, r, BPF_ANY);
	bpf_loop(PERGOLA_COPIES - 1, make_copy, NULL, 0);
}

SEC("xdp.frags")
int program_xdp(struct xdp_md *ctx)
{
	const struct program_input *in = find_program_input();
	struct program_record *r = find_program_record();

	if (!in || !r || !rewind_xdp(ctx, r))
		return XDP_ABORTED;
	if (last_stage < STAGE_LOAD)
		return XDP_PASS;
	run_xdp(ctx, r, in);
	if (!leaves(r->outcome.verdict) || r->outcome.fault != PROGRAM_OK)
		return XDP_DROP;
	make_copies(r);
	return XDP_TX;
}

SEC("tc")
int program_tc(struct __sk_buff *skb)
{
	const struct program_input *in = find_program_input();
	struct program_record *r = find_program_record();

	if (!in || !r)
		return TC_ACT_SHOT;
	run_skb(skb, r, in);
	if (!leaves(r->outcome.verdict) || r->outcome.fault != PROGRAM_OK)
		return TC_ACT_SHOT;
	make_copies(r);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
