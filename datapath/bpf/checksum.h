/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The UDP checksum of a whole packet of VXLAN. Tunnels between hosts have none. Where there is one it has to be right
 * (RFC 7348, 4.1; so does Linux, udp_queue_rcv_one_skb()): it is summed up here, in tc, once for each such packet.
 */
#pragma once

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CHUNK 128
#define CHUNKS (65536 / CHUNK)

/* What bpf_loop() hands to its callback has to be on the stack. */
struct summing {
	struct __sk_buff *skb;
	__u32 at, end; /* in the packet: what is left */
	__u32 sum;
};

static long sum_chunk(__u32 i __attribute__((unused)), void *data)
{
	struct {
		__u8 align[3];
		__u8 before; /* what stands before it: Linux 6.1 does not see that a length is at least 1 */
		__u8 bytes[CHUNK];
	} c = {};
	struct summing *s = data;
	__u64 n;

	if (s->at >= s->end)
		return 1;
	n = s->end - s->at;
	if (n > CHUNK)
		n = CHUNK;
	asm volatile("" : "+r"(n)); /* as header_length() */
	if (n > CHUNK || bpf_skb_load_bytes(s->skb, s->at - 1, &c.before, n + 1))
		return 1;
	c.before = 0;
	s->sum = bpf_csum_diff(NULL, 0, (__be32 *)c.bytes, CHUNK, s->sum);
	s->at += n;
	return 0;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

struct pseudo_header {
	__u8 addresses[2 * sizeof(struct in6_addr)]; /* both */
	__be32 length;
	__be32 protocol;
};

/*
 * Is the checksum of the UDP packet that ends here right, behind Ethernet and an IP header without options? A network
 * card may have said so. A sender on this machine leaves it unfinished: then it is the pseudo header's sum.
 */
__noinline int verify_udp(struct __sk_buff *skb, __u32 end, __u32 v6)
{
	struct summing s = {.skb = skb, .end = end};
	struct pseudo_header p = {};
	__u32 pseudo;
	__be16 check;

	if (bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return true;
	if (v6) {
		s.at = ETH_HLEN + sizeof(struct ipv6hdr);
		if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), p.addresses, 32))
			return false;
	} else {
		s.at = ETH_HLEN + sizeof(struct iphdr);
		if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), p.addresses, 8))
			return false;
	}
	p.length = bpf_htonl(end - s.at);
	p.protocol = bpf_htonl(IPPROTO_UDP);
	pseudo = bpf_csum_diff(NULL, 0, (__be32 *)&p, sizeof(p), 0);
	if (bpf_skb_load_bytes(skb, s.at + offsetof(struct udphdr, check), &check, sizeof(check)))
		return false;
	if (check == fold(pseudo))
		return true;
	s.sum = pseudo;
	bpf_loop(CHUNKS, sum_chunk, &s, 0);
	return s.at >= s.end && fold(s.sum) == 0xffff;
}
