/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* shares: a datagram to port 5000 + n leaves by interface n, in the queue that has the number of where it came in. */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);
	struct port_numbers *ports = pergola_header(packet, PERGOLA_ETHERNET + 20, struct port_numbers);

	if (eth->type != pergola_htons(TYPE_IPV4) || ip->protocol != PROTOCOL_UDP)
		return PERGOLA_DROP;
	packet->output = pergola_ntohs(ports->destination) - 5000;
	packet->queue = packet->interface;
	return PERGOLA_SEND;
}
