/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sorter: a datagram to an address that ends in 9 is punted, all else leaves by the other interface. */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);

	if (eth->type == pergola_htons(TYPE_IPV4) && (pergola_ntohl(ip->destination) & 0xff) == 9)
		return PERGOLA_PUNT;
	packet->output = 3 - packet->interface;
	return PERGOLA_SEND;
}
