/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ipv4: a router for IPv4, with filters over addresses, protocol, ports and traffic class.
 *
 * A filter's result names the interface and the queue. Its arguments are the Ethernet addresses of the next hop and of
 * the interface. What a router's fast path does not do goes to the slow path: frames that are not IPv4 (ARP), options,
 * fragments that filters cannot see the ports of, TTL 1, and all that no filter matches.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_KEY {
	uint32_t destination;
	uint32_t source;
	uint16_t destination_port; /* 0: the packet has none */
	uint16_t source_port;
	uint8_t protocol;
	uint8_t tos;
};

/* A result's arguments. */
struct next_hop {
	uint8_t to[6];
	uint8_t from[6];
};

PERGOLA_COUNTERS {
	uint64_t forwarded, not_ipv4, malformed, options, fragments, expired;
};

/* Reasons of punts, for the slow path. */
enum reason { NO_FILTER, NOT_IPV4, OPTIONS, FRAGMENT, EXPIRED };

static int punt(struct pergola_packet *packet, enum reason why)
{
	packet->reason = why;
	return PERGOLA_PUNT;
}

static bool has_ports(uint8_t protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP;
}

/* The sum over a header without options; 0 if its checksum is right. */
static uint16_t check(const struct ipv4_header *ip)
{
	const uint16_t *words = (const uint16_t *)ip;
	uint64_t sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	return pergola_fold(sum);
}

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);
	struct port_numbers *ports = pergola_header(packet, PERGOLA_ETHERNET + 20, struct port_numbers);
	struct pergola_key *key = pergola_key(packet);

	if (eth->type != pergola_htons(TYPE_IPV4)) {
		pergola_count(not_ipv4);
		return punt(packet, NOT_IPV4);
	}
	if (packet->length < PERGOLA_ETHERNET + sizeof(*ip) || ip->version_ihl >> 4 != 4 ||
	    pergola_ntohs(ip->length) < sizeof(*ip) ||
	    pergola_ntohs(ip->length) > packet->length - PERGOLA_ETHERNET) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	if (ip->version_ihl != 0x45) {
		pergola_count(options);
		return punt(packet, OPTIONS);
	}
	if (check(ip)) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	if (ip->ttl <= 1) {
		pergola_count(expired);
		return punt(packet, EXPIRED);
	}
	if (ip->fragment & pergola_htons(0x3fff)) { /* more fragments, or an offset */
		pergola_count(fragments);
		return punt(packet, FRAGMENT);
	}
	key->destination = ip->destination;
	key->source = ip->source;
	key->protocol = ip->protocol;
	key->tos = ip->tos;
	if (has_ports(ip->protocol) && pergola_ntohs(ip->length) >= sizeof(*ip) + sizeof(*ports)) {
		key->destination_port = ports->destination;
		key->source_port = ports->source;
	}
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);
	struct next_hop *next = (struct next_hop *)result->arguments;
	uint16_t was = *(uint16_t *)&ip->ttl;

	__builtin_memcpy(eth->to, next->to, sizeof(eth->to));
	__builtin_memcpy(eth->from, next->from, sizeof(eth->from));
	ip->ttl--;
	ip->checksum = pergola_fix_checksum(ip->checksum, was, *(uint16_t *)&ip->ttl);
	pergola_count(forwarded);
	return result->verdict;
}
