/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * post: a protocol that is not IP, with addresses of its own: an area and a station. docs/tutorial-programs.md writes
 * it from nothing; post.py is what hosts send and receive with.
 *
 *	0          14   16     17      18      20
 *	| Ethernet | to | hops | flags | from | payload
 *
 * Filters say where an area, or a station of it, is. A letter that was handed on too often ends.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

struct address {
	uint8_t area;
	uint8_t station;
};

struct post {
	struct address to;
	uint8_t hops; /* how often it may still be handed on */
	uint8_t flags;
	struct address from;
};

PERGOLA_KEY {
	uint8_t area;
	uint8_t station;
};

PERGOLA_COUNTERS {
	uint64_t forwarded, expired, malformed, other;
};

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct post *letter = pergola_header(packet, PERGOLA_ETHERNET, struct post);

	if (eth->type != pergola_htons(TYPE_LOCAL)) {
		pergola_count(other);
		return PERGOLA_PUNT;
	}
	if (packet->length < PERGOLA_ETHERNET + sizeof(*letter)) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	if (letter->hops <= 1) {
		pergola_count(expired);
		return PERGOLA_DROP;
	}
	pergola_key(packet)->area = letter->to.area;
	pergola_key(packet)->station = letter->to.station;
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	struct post *letter = pergola_header(packet, PERGOLA_ETHERNET, struct post);

	letter->hops--;
	pergola_count(forwarded);
	return result->verdict;
}
