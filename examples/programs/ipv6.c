/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ipv6: a router for IPv6, with filters over addresses, next header, ports and traffic class.
 *
 * A filter's result names interface and queue; its arguments are the Ethernet addresses of the next hop and of the
 * interface. Frames that are not IPv6, hop-by-hop options, hop limit 1, and multicast go to the slow path, as does
 * what no filter matches.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_KEY {
	struct ipv6_address destination;
	struct ipv6_address source;
	uint16_t destination_port; /* 0: the packet has none, or an extension header stands before them */
	uint16_t source_port;
	uint8_t next;
	uint8_t traffic_class;
};

/* A result's arguments. */
struct next_hop {
	uint8_t to[6];
	uint8_t from[6];
};

PERGOLA_COUNTERS {
	uint64_t forwarded, not_ipv6, malformed, options, expired, scope;
};

/* Reasons of punts, for the slow path. */
enum reason { NO_FILTER, NOT_IPV6, OPTIONS, EXPIRED, SCOPE };

#define NEXT_HOP_BY_HOP 0

static int punt(struct pergola_packet *packet, enum reason why)
{
	packet->reason = why;
	return PERGOLA_PUNT;
}

static bool has_ports(uint8_t next) { return next == PROTOCOL_TCP || next == PROTOCOL_UDP || next == PROTOCOL_SCTP; }

/* RFC 4291: multicast, link-local, and the unspecified and loopback addresses stay on their link. */
static bool stays(const struct ipv6_address *a)
{
	uint32_t first = pergola_ntohl(a->words[0]);

	return first >> 24 == 0xff || first >> 22 == 0xfe80 >> 6 || !(a->words[0] | a->words[1] | a->words[2]);
}

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv6_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv6_header);
	struct port_numbers *ports = pergola_header(packet, PERGOLA_ETHERNET + 40, struct port_numbers);
	struct pergola_key *key = pergola_key(packet);

	if (eth->type != pergola_htons(TYPE_IPV6)) {
		pergola_count(not_ipv6);
		return punt(packet, NOT_IPV6);
	}
	if (packet->length < PERGOLA_ETHERNET + sizeof(*ip) || pergola_ntohl(ip->version_class_flow) >> 28 != 6 ||
	    pergola_ntohs(ip->length) > packet->length - PERGOLA_ETHERNET - sizeof(*ip)) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	if (ip->next == NEXT_HOP_BY_HOP) {
		pergola_count(options);
		return punt(packet, OPTIONS);
	}
	if (stays(&ip->destination) || stays(&ip->source)) {
		pergola_count(scope);
		return punt(packet, SCOPE);
	}
	if (ip->hop_limit <= 1) {
		pergola_count(expired);
		return punt(packet, EXPIRED);
	}
	key->destination = ip->destination;
	key->source = ip->source;
	key->next = ip->next;
	key->traffic_class = pergola_ntohl(ip->version_class_flow) >> 20;
	if (has_ports(ip->next) && pergola_ntohs(ip->length) >= sizeof(*ports)) {
		key->destination_port = ports->destination;
		key->source_port = ports->source;
	}
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv6_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv6_header);
	struct next_hop *next = (struct next_hop *)result->arguments;

	__builtin_memcpy(eth->to, next->to, sizeof(eth->to));
	__builtin_memcpy(eth->from, next->from, sizeof(eth->from));
	ip->hop_limit--;
	pergola_count(forwarded);
	return result->verdict;
}
