/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * wire: a wire between interfaces 1 and 2, whose filters choose the queue at the other end.
 *
 *	protocol=6 port=5001 -> send 2 queue 1
 *	tos=0xb8/0xfc        -> send 2 queue 2		DSCP EF
 *
 * What no filter matches takes queue 0, and so does what is not IPv4. Interfaces that filters name mean nothing here.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_KEY {
	uint8_t protocol;
	uint8_t tos;
	uint16_t port; /* destination of TCP and UDP; of fragments 0 */
};

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);
	struct pergola_key *key = pergola_key(packet);

	packet->miss = PERGOLA_SEND;
	if (eth->type != pergola_htons(TYPE_IPV4))
		return PERGOLA_LOOKUP;
	key->protocol = ip->protocol;
	key->tos = ip->tos;
	if (ip->version_ihl != 0x45 || ip->fragment & pergola_htons(0x3fff)) /* options; more fragments, or an offset */
		return PERGOLA_LOOKUP;
	if (ip->protocol == PROTOCOL_TCP || ip->protocol == PROTOCOL_UDP)
		key->port = pergola_header(packet, PERGOLA_ETHERNET + 20, struct port_numbers)->destination;
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	packet->output = 3 - packet->interface;
	return result->verdict;
}
