/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Checksums of TCP and UDP that a sender has left to a network card (CHECKSUM_PARTIAL). A program of tc is not told.
 * But the place of such a checksum holds the sum of the pseudo-header, as the card wants it; of frames whose sum is
 * finished, one in 65,535 looks so, too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The sum of 16-bit words modulo 65,535. */
static __always_inline __u32 modulo_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0 : sum;
}

/* Both in network order, which the sum does not depend on but for the order of its bytes. */
static __always_inline __u64 sum_words(const __be32 *words, __u32 n)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < n; i++)
		sum += words[i];
	return sum;
}

/* What is known of the layer above IP. */
struct above {
	__u64 pseudo; /* sum of the pseudo-header, without protocol */
	__u32 at;     /* where it begins */
	__u8 protocol;
};

static __always_inline bool read_above(const struct __sk_buff *skb, struct above *a)
{
	struct {
		__u8 align[2];
		struct ethhdr eth;
		union {
			struct iphdr ip4;
			struct ipv6hdr ip6;
		};
	} h = {};

	if (bpf_skb_load_bytes(skb, 0, &h.eth, ETH_HLEN + sizeof(h.ip4)))
		return false;
	if (h.eth.h_proto == bpf_htons(ETH_P_IP)) {
		a->protocol = h.ip4.protocol;
		a->at = ETH_HLEN + h.ip4.ihl * 4;
		a->pseudo = sum_words(&h.ip4.saddr, 2) + bpf_htons(bpf_ntohs(h.ip4.tot_len) - h.ip4.ihl * 4);
		return true;
	}
	if (h.eth.h_proto != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN, &h.ip6, sizeof(h.ip6)))
		return false;
	a->protocol = h.ip6.nexthdr;
	a->at = ETH_HLEN + sizeof(h.ip6);
	a->pseudo = sum_words(h.ip6.saddr.in6_u.u6_addr32, 8) + h.ip6.payload_len;
	return true;
}

__noinline int has_unfinished_sum(struct __sk_buff *skb)
{
	struct above a = {};
	__sum16 check = 0;

	if (!read_above(skb, &a))
		return false;
	if (a.protocol == IPPROTO_UDP)
		a.at += offsetof(struct udphdr, check);
	else if (a.protocol == IPPROTO_TCP)
		a.at += offsetof(struct tcphdr, check);
	else
		return false;
	if (bpf_skb_load_bytes(skb, a.at, &check, sizeof(check)) || !check)
		return false;
	return modulo_sum(a.pseudo + bpf_htons(a.protocol)) == modulo_sum(check);
}
