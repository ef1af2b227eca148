/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What examples/programs/ipv4.c does, as a program of the platform's own would: in one piece, with pointers into the
 * frame. BenchmarkMediation compares a packet program with it. Both make the frame anew before each run.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../bpf/filter.h"

#define MAX_FRAME 256

struct builtin_frame {
	__u64 length;
	__u8 bytes[MAX_FRAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct builtin_frame);
} builtin_frames SEC(".maps");

struct builtin_work {
	struct filter_key key;
	struct filter_match match;
	__u64 forwarded, others;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct builtin_work);
} builtin_works SEC(".maps");

/* Of ipv4.c. */
struct builtin_key {
	__u32 destination, source;
	__u16 destination_port, source_port;
	__u8 protocol, tos;
};

/* 0: nothing but the frame is made anew. */
const volatile __u32 forwards = 1;

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u16 check(const struct iphdr *ip)
{
	const __u16 *words = (const void *)ip;
	__u64 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	return fold(sum);
}

static __always_inline bool has_ports(__u8 protocol) { return protocol == 6 || protocol == 17 || protocol == 132; }

/* Returns an XDP action; XDP_PASS where ipv4.c punts. */
static __always_inline int forward(struct xdp_md *ctx, struct builtin_work *w)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct builtin_key *key = (void *)&w->key;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct udphdr *ports = (void *)(ip + 1);
	const __u8 *next;
	__u32 length;
	__u16 was;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	length = bpf_xdp_get_buff_len(ctx);
	if (ip->version != 4 || bpf_ntohs(ip->tot_len) < sizeof(*ip) ||
	    bpf_ntohs(ip->tot_len) > length - sizeof(*eth))
		return XDP_DROP;
	if (ip->ihl != 5)
		return XDP_PASS;
	if (check(ip))
		return XDP_DROP;
	if (ip->ttl <= 1 || ip->frag_off & bpf_htons(0x3fff))
		return XDP_PASS;
	w->key.word[0] = 0;
	w->key.word[1] = 0;
	key->destination = ip->daddr;
	key->source = ip->saddr;
	key->protocol = ip->protocol;
	key->tos = ip->tos;
	if (has_ports(ip->protocol) && (void *)ports + 4 <= end) {
		key->destination_port = ports->dest;
		key->source_port = ports->source;
	}
	if (!filter_lookup(0, &w->key, &w->match))
		return XDP_PASS;
	next = (const __u8 *)&w->match.result.word[4]; /* arguments */
	was = *(__u16 *)&ip->ttl;
	__builtin_memcpy(eth->h_dest, next, ETH_ALEN);
	__builtin_memcpy(eth->h_source, next + ETH_ALEN, ETH_ALEN);
	ip->ttl--;
	ip->check = fold((__u64)(__u16)~ip->check + (__u16)~was + *(__u16 *)&ip->ttl);
	w->forwarded++;
	return XDP_TX;
}

SEC("xdp.frags")
int builtin_xdp(struct xdp_md *ctx)
{
	const struct builtin_frame *f;
	struct builtin_work *w;
	__u32 zero = 0;
	__u64 n;

	f = bpf_map_lookup_elem(&builtin_frames, &zero);
	w = bpf_map_lookup_elem(&builtin_works, &zero);
	if (!f || !w)
		return XDP_ABORTED;
	n = f->length - 1;
	asm volatile("" : "+r"(n));
	if (n >= MAX_FRAME || bpf_xdp_store_bytes(ctx, 0, (void *)f->bytes, n + 1))
		return XDP_ABORTED;
	return forwards ? forward(ctx, w) : XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
