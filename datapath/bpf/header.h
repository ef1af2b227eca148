/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A frame's headers, in a copy. Nodes on the way change the copy; the frame itself is written once, at the exits
 * (edit.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "edit.h"
#include "punt.h"

/* What is read of the layer above IP: the ports, and TCP's data offset. */
struct ports_and_offset {
	__be16 ports[2];
	__u8 skipped[8];
	__u8 offset; /* in the upper four bits, in words */
	__u8 more[3];
};

struct header {
	__u8 align[2]; /* so that what follows Ethernet is aligned, and the source's address */
	struct ethhdr eth;
	union {
		struct {
			struct iphdr ip4;
			struct ports_and_offset above4;
		};
		struct {
			struct ipv6hdr ip6;
			struct ports_and_offset above6;
		};
	};
} __attribute__((aligned(8)));

static __always_inline bool is_ip4(const struct header *h) { return h->eth.h_proto == bpf_htons(ETH_P_IP); }

static __always_inline bool is_ip(const struct header *h)
{
	return is_ip4(h) || h->eth.h_proto == bpf_htons(ETH_P_IPV6);
}

/* How many bytes of a frame of this length to copy to &header.eth. 0: it has no Ethernet header. */
static __always_inline __u64 header_length(__u32 length)
{
	__u64 n = length;

	asm volatile("" : "+r"(n)); /* the verifier of Linux 6.1 must see that this very register is bounded */
	if (n > sizeof(struct header) - offsetof(struct header, eth))
		return sizeof(struct header) - offsetof(struct header, eth);
	return n < ETH_HLEN ? 0 : n;
}

typedef __u64 __attribute__((may_alias)) word;
typedef __u32 __attribute__((may_alias)) half;

/*
 * Copies the headers from where a program sees them without a helper: a helper's call and its string copy, out of which
 * the CPU cannot forward what is read next, cost 20 ns. Words are stored so that each field lies within one. Returns
 * false where the frame does not begin with all of it: it is short, or lies in several buffers.
 */
static __always_inline bool copy_header(struct header *h, __u32 length, const void *data, const void *end)
{
	const word *from = data + ETH_ALEN; /* the source's address and the type, then the IP header */
	word *to = (word *)h + 1;
	const unsigned int words = 1 + sizeof(h->ip6) / sizeof(*to), ports = sizeof(h->above6) / sizeof(*to);

	if ((const void *)(from + words) > end)
		return false;
	__builtin_memcpy(h->eth.h_dest, __builtin_assume_aligned(data, 2), ETH_ALEN);
	for (unsigned int i = 0; i < words; i++)
		to[i] = from[i];
	if (is_ip4(h) || length <= ETH_HLEN + sizeof(h->ip6))
		return true;
	if ((const void *)(from + words + ports) > end)
		return false;
	for (unsigned int i = words; i < words + ports; i++)
		to[i] = from[i];
	return true;
}

/* Copies the headers of a frame in tc; in XDP, read_header() does (xdp.h). False: it has no Ethernet header. */
static __always_inline bool load_header(const struct __sk_buff *skb, struct header *h, __u32 length)
{
	__u64 n = header_length(length);

	if (copy_header(h, length, (void *)(long)skb->data, (void *)(long)skb->data_end))
		return true;
	return n && !bpf_skb_load_bytes(skb, 0, &h->eth, n);
}

enum {
	IPV4_FRAGMENT = 0x3fff, /* more fragments, offset */
	IPV4_OFFSET = 0x1fff,
	NEXTHDR_HOP = 0,
	NEXTHDR_FRAGMENT = 44,
};

static __always_inline bool same_mac(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const void *)a, *y = (const void *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]));
}

/* The sum of all words: of a header whose checksum is right, all ones. */
static __always_inline __u16 sum_ip4(const struct iphdr *ip)
{
	const __u32 *word = (const void *)ip;
	__u64 sum = 0;

	for (int i = 0; i < 5; i++)
		sum += word[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline bool verify_ip4_checksum(const struct iphdr *ip) { return sum_ip4(ip) == 0xffff; }

/*
 * Is it a header that every router forwards? Refused is what ip_rcv_core() and ip_route_input_slow() refuse whatever
 * the routes are; they cut padding, too. The copy holds at least so much.
 */
static __always_inline enum punt inspect_ip4(const struct header *h, __u32 length)
{
	__u32 from = bpf_ntohl(h->ip4.saddr), to = bpf_ntohl(h->ip4.daddr);

	if (length < ETH_HLEN + sizeof(h->ip4) || h->ip4.version != 4 || h->ip4.ihl < 5)
		return PUNT_MALFORMED;
	if (h->ip4.ihl != 5)
		return PUNT_OPTIONS;
	if (bpf_ntohs(h->ip4.tot_len) + ETH_HLEN != length || !verify_ip4_checksum(&h->ip4))
		return PUNT_MALFORMED;
	if (h->ip4.frag_off & bpf_htons(IPV4_FRAGMENT))
		return PUNT_FRAGMENT;
	/* 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 */
	if (from >> 24 == 0 || from >> 24 == 127 || from >> 28 == 14 || from == 0xffffffff)
		return PUNT_SOURCE;
	if (to >> 24 == 0 || to >> 24 == 127 || to >> 28 == 14 || to == 0xffffffff)
		return PUNT_SCOPE;
	return WALK_ON;
}

/*
 * Addresses below ::/64 are the unspecified one, loopback, and those that embed IPv4's: routers forward none of them.
 */
static __always_inline bool is_special_ip6(const struct in6_addr *a)
{
	return !(a->s6_addr32[0] | a->s6_addr32[1]) || a->s6_addr[0] == 0xff ||
	       (a->s6_addr32[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* The same for IPv6: what ip6_rcv_core() and ip6_forward() refuse whatever the routes are. */
static __always_inline enum punt inspect_ip6(const struct header *h, __u32 length)
{
	if (length < ETH_HLEN + sizeof(h->ip6) || h->ip6.version != 6 ||
	    bpf_ntohs(h->ip6.payload_len) + sizeof(h->ip6) + ETH_HLEN != length)
		return PUNT_MALFORMED;
	if (h->ip6.nexthdr == NEXTHDR_HOP)
		return PUNT_OPTIONS;
	if (h->ip6.nexthdr == NEXTHDR_FRAGMENT)
		return PUNT_FRAGMENT;
	if (is_special_ip6(&h->ip6.saddr))
		return PUNT_SOURCE;
	if (is_special_ip6(&h->ip6.daddr))
		return PUNT_SCOPE;
	return WALK_ON;
}

static __always_inline __u8 protocol(const struct header *h) { return is_ip4(h) ? h->ip4.protocol : h->ip6.nexthdr; }

/*
 * The longest packet that a frame stands for, to be compared with an MTU, as skb_gso_validate_network_len() has it.
 * The headers of what is neither TCP nor short are not read, but bounded: the kernel then decides. UDP may be a
 * tunnel. What has other headers above IP (extensions of IPv6, of any length) counts as one packet.
 */
static __always_inline __u32 packet_length(const struct header *h, __u32 length, __u32 segment)
{
	/* UDP, VXLAN or Geneve, Ethernet, a VLAN tag, IPv6, TCP with options: 134, and room for Geneve's own options */
	const __u32 at_most = 160;
	__u32 network = is_ip4(h) ? sizeof(h->ip4) : sizeof(h->ip6);
	__u8 offset = is_ip4(h) ? h->above4.offset : h->above6.offset;

	if (segment && protocol(h) == IPPROTO_UDP)
		return network + at_most + segment;
	if (segment && protocol(h) == IPPROTO_TCP && length >= ETH_HLEN + network + sizeof(h->above4))
		return network + (offset >> 4) * 4 + segment;
	return length - ETH_HLEN;
}

/*
 * The next node finds the frame with these addresses: each is the first six bytes of a word, as it lies in memory. They
 * are stored in the words that others load (copy_header(), paste_ethernet()).
 */
static __always_inline void readdress(struct header *h, __u64 to, __u64 from)
{
	const __u64 address = (1ull << 48) - 1; /* the object is for little-endian machines alone */
	word *words = (word *)h;

	words[0] = to << 16;
	words[1] = (words[1] & ~address) | (from & address);
}

static __always_inline __u8 ttl(const struct header *h) { return is_ip4(h) ? h->ip4.ttl : h->ip6.hop_limit; }

/*
 * What so many routers make of TTL and checksum: as ip_decrease_ttl() each, which keeps the sum of all words (RFC
 * 1624) and never writes a checksum of all ones. The word is written as a whole: the CPU cannot forward several
 * stores to one load.
 */
static __always_inline void age(struct header *h, __u32 hops)
{
	half *word;
	__u32 check;

	if (!is_ip4(h)) {
		word = (half *)&h->ip6 + 1; /* payload length, next header, hop limit */
		*word -= bpf_htonl(hops);
		return;
	}
	word = (half *)&h->ip4 + 2; /* TTL, protocol, checksum */
	check = (*word >> 16) + bpf_htons(0x0100) * hops;
	if (check >= 0xffff)
		check -= 0xffff;
	*word = (*word & 0xff00) | (__u8)(*word - hops) | check << 16;
}

/*
 * Copies an Ethernet header of the record, where it lies as in struct header: two bytes behind a word. The compiler
 * copies byte by byte what it does not know to be aligned.
 */
static __always_inline void paste_ethernet(const struct ethhdr *eth, void *data)
{
	const word *behind = (const void *)eth + ETH_ALEN; /* the source's address and the type */

	__builtin_memcpy(__builtin_assume_aligned(data, 2), __builtin_assume_aligned(eth, 2), ETH_ALEN);
	*(word *)(data + ETH_ALEN) = *behind;
}

/*
 * Writes the first HOP_HEAD bytes of the copy to where the frame begins. Returns false where not all of it is there.
 */
static __always_inline bool paste_hop(const struct header *h, void *data, const void *end)
{
	const half *from = (const void *)&h->ip4;
	struct ethhdr *eth = data;
	half *to = (void *)(eth + 1);

	if ((void *)to + HOP_HEAD - ETH_HLEN > end)
		return false;
	paste_ethernet(&h->eth, data);
	for (int i = 0; i < (HOP_HEAD - ETH_HLEN) / 4; i++)
		to[i] = from[i];
	return true;
}
