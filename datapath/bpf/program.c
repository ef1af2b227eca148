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

SEC("xdp.frags")
int program_xdp(struct xdp_md *ctx)
{
	const struct program_input *in = find_program_input();
	struct program_record *r = find_program_record();

	if (!in || !r)
		return XDP_ABORTED;
	run_xdp(ctx, r, in);
	return leaves(r->outcome.verdict) && r->outcome.fault == PROGRAM_OK ? XDP_TX : XDP_DROP;
}

SEC("tc")
int program_tc(struct __sk_buff *skb)
{
	const struct program_input *in = find_program_input();
	struct program_record *r = find_program_record();

	if (!in || !r)
		return TC_ACT_SHOT;
	run_skb(skb, r, in);
	return leaves(r->outcome.verdict) && r->outcome.fault == PROGRAM_OK ? TC_ACT_OK : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
