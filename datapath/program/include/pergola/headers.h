/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * pergola/headers.h: headers that programs often meet. All fields are in network order. Nothing needs this file.
 */
#ifndef PERGOLA_HEADERS_H
#define PERGOLA_HEADERS_H

#include <stdint.h>

#define PERGOLA_ETHERNET 14 /* bytes of an Ethernet header: what stands behind it begins at this offset */

struct ethernet_header {
	uint8_t to[6];
	uint8_t from[6];
	uint16_t type;
};

enum {
	TYPE_IPV4 = 0x0800,
	TYPE_ARP = 0x0806,
	TYPE_IPV6 = 0x86dd,
	TYPE_MPLS = 0x8847,
	TYPE_LOCAL = 0x88b5, /* for experiments (IEEE 802, local experimental Ethertype 1) */
};

/* RFC 791 */
struct ipv4_header {
	uint8_t version_ihl; /* 0x45 without options */
	uint8_t tos;
	uint16_t length;
	uint16_t id;
	uint16_t fragment;
	uint8_t ttl;
	uint8_t protocol;
	uint16_t checksum;
	uint32_t source;
	uint32_t destination;
};

/* RFC 8200. Addresses have the alignment of four bytes that they have behind an Ethernet header. */
struct ipv6_address {
	uint32_t words[4];
};

struct ipv6_header {
	uint32_t version_class_flow;
	uint16_t length;
	uint8_t next;
	uint8_t hop_limit;
	struct ipv6_address source;
	struct ipv6_address destination;
};

/* What TCP, UDP, SCTP, DCCP and UDP-Lite begin with. */
struct port_numbers {
	uint16_t source;
	uint16_t destination;
};

enum {
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_SCTP = 132,
};

/* RFC 3032: label (20 bits), traffic class (3), bottom of stack (1), TTL (8) */
struct mpls_entry {
	uint32_t word;
};

#endif
