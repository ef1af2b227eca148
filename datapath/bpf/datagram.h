/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * UDP packets in which frames of packet programs are (udp.h).
 */
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "header.h"

/* The headers of a UDP packet, in a copy. */
struct datagram {
	__u8 align[2];
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
};

#define DATAGRAM_HEAD (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))
#define UDP_HEADERS (DATAGRAM_HEAD - ETH_HLEN) /* so many bytes longer is a packet than its frame */

/*
 * Is a packet for such a port in order, in a frame of this length? Its UDP checksum is not looked at: a program that
 * wants one has it in its own header. From port 0 nothing comes that could be answered (RFC 768).
 */
static __always_inline bool is_datagram(const struct datagram *d, __u32 length)
{
	__u32 total = bpf_ntohs(d->ip.tot_len);

	return verify_ip4_checksum(&d->ip) && total + ETH_HLEN <= length && total >= UDP_HEADERS &&
	       bpf_ntohs(d->udp.len) + sizeof(d->ip) == total && d->udp.source;
}
