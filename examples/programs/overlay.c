/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * overlay: an Ethernet link over UDP. Frames of interface 1, a link, go to the other end in UDP packets; what comes in
 * UDP packets goes out by interface 1. Filters name the other end: where frames go, and from where they are taken.
 *
 *	from=0.0.0.0       -> udp 198.51.100.2:5610	what came by the link
 *	from=198.51.100.2  -> send 1
 *
 * What no filter matches is dropped: anybody can send to a UDP port. The headers take 42 bytes (Ethernet inside, UDP,
 * IPv4), so the link's mtu is at most 1,458 where that of the machines is 1,500.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_KEY {
	uint32_t from; /* sender of the UDP packet; 0: it came by the link */
};

PERGOLA_COUNTERS {
	uint64_t wrapped, unwrapped, malformed;
};

PERGOLA_PARSE(packet)
{
	packet->miss = PERGOLA_DROP;
	if (!packet->outer_port)
		return pergola_grow(packet, PERGOLA_ETHERNET) ? PERGOLA_LOOKUP : PERGOLA_DROP;
	/* 14 bytes of zeros stand before the payload, which is an Ethernet frame here. */
	if (packet->length < 2 * PERGOLA_ETHERNET || !pergola_shrink(packet, PERGOLA_ETHERNET)) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	pergola_key(packet)->from = *(uint32_t *)(packet->outer_address + 12);
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	if (packet->outer_port)
		pergola_count(unwrapped);
	else
		pergola_count(wrapped);
	return result->verdict;
}
