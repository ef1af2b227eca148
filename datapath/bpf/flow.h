/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which of several equal paths a flow takes: the same for all its frames, and at each router independent of the
 * choice of the router before, so that the flows which one path brings do not all leave by one path.
 */
#pragma once

#include "header.h"
#include "label_entry.h"

static __always_inline __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	return x ^ x >> 32;
}

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_DCCP || protocol == IPPROTO_UDPLITE;
}

static __always_inline __u64 hash_flow(const struct header *h, __u32 length)
{
	__u32 need = ETH_HLEN + (is_ip4(h) ? sizeof(h->ip4) : sizeof(h->ip6)) + sizeof(h->above4.ports);
	const __u64 *addresses = (const void *)&h->ip6.saddr;
	__u64 hash = protocol(h), ports = 0;

	if (has_ports(protocol(h)) && length >= need)
		ports = is_ip4(h) ? *(const __u32 *)h->above4.ports : *(const __u32 *)h->above6.ports;
	if (is_ip4(h))
		return mix(mix((__u64)h->ip4.saddr << 32 | h->ip4.daddr) ^ ports << 8 ^ hash);
	hash ^= (__u64)(*(const __u32 *)&h->ip6 & bpf_htonl(0xfffff)) << 32; /* flow label */
	for (int i = 0; i < 4; i++)
		hash = mix(hash ^ addresses[i]);
	return mix(hash ^ ports << 8);
}

/* Of a frame that carries labels, the top one tells LSPs apart; what goes by one of them stays together. */
static __always_inline __u32 top_label(const struct header *h, __u32 length)
{
	if (h->eth.h_proto != bpf_htons(ETH_P_MPLS_UC) || length < ETH_HLEN + sizeof(__be32))
		return 0;
	return ENTRY_LABEL(bpf_ntohl(*(const half *)&h->ip4));
}

/*
 * What tells flows apart outside of a tunnel: all frames of a flow have the same value, fragments included, of which
 * only the first has ports.
 */
static __always_inline __u32 entropy(const struct header *h, __u32 length)
{
	const __u64 *addresses = (const void *)&h->eth;
	__u64 source;

	if (h->eth.h_proto == bpf_htons(ETH_P_IPV6) && length >= ETH_HLEN + sizeof(h->ip6))
		return hash_flow(h, length);
	if (h->eth.h_proto != bpf_htons(ETH_P_IP) || length < ETH_HLEN + sizeof(h->ip4)) {
		source = *(const __u32 *)(h->eth.h_source + 2);
		return mix(addresses[0] ^ (source ^ top_label(h, length)) << 32);
	}
	if (h->ip4.ihl != 5 || h->ip4.frag_off & bpf_htons(IPV4_FRAGMENT))
		return mix((__u64)h->ip4.saddr << 32 | h->ip4.daddr);
	return hash_flow(h, length);
}
