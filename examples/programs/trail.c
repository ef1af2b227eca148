/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * trail: a protocol that is not IP. The sender writes the whole way into the frame, as a list of interfaces (source
 * routing), and each node takes the first off. Nodes need no table, no address and no routing protocol.
 *
 *	0         14     16    17    18
 *	| Ethernet | type | left | done | hop | hop | ... | payload
 *
 * `type` is the Ethertype of the payload. `left` is the number of hops that are still in the list; `done` counts those
 * that were taken off. A hop is an interface of the node; 0 is the node itself, and there the frame goes to the slow
 * path. A frame that has come to the end of its trail becomes a plain frame again: the last node takes the header off.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

#define MAX_HOPS 16

struct trail {
	uint16_t type;
	uint8_t left;
	uint8_t done;
};

PERGOLA_COUNTERS {
	uint64_t passed, ended, here, malformed;
};

/* Everything behind the header moves: the frame begins later, and what stands before the cut is written again. */
static int move_head(struct pergola_packet *packet, const struct ethernet_header *eth, uint32_t cut)
{
	struct ethernet_header *to = pergola_at(packet, cut, sizeof(*to));

	if (!to || !pergola_shrink(packet, cut))
		return PERGOLA_DROP;
	*to = *eth;
	return PERGOLA_SEND;
}

PERGOLA_PARSE(packet)
{
	struct ethernet_header eth = *pergola_header(packet, 0, struct ethernet_header);
	struct trail t = *pergola_header(packet, PERGOLA_ETHERNET, struct trail), *moved;
	uint8_t hop = *pergola_header(packet, PERGOLA_ETHERNET + sizeof(struct trail), uint8_t);

	if (eth.type != pergola_htons(TYPE_LOCAL))
		return PERGOLA_PUNT;
	if (t.left == 0 || t.left > MAX_HOPS || packet->length < PERGOLA_ETHERNET + sizeof(t) + t.left) {
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	if (hop == 0) {
		pergola_count(here);
		return PERGOLA_PUNT;
	}
	packet->output = hop;
	if (t.left == 1) {
		pergola_count(ended);
		eth.type = t.type;
		return move_head(packet, &eth, sizeof(t) + 1);
	}
	/* One hop less: what stands before the list moves one byte, over the hop that was first. */
	moved = pergola_header(packet, PERGOLA_ETHERNET + 1, struct trail);
	t.left--;
	t.done++;
	*moved = t;
	pergola_count(passed);
	return move_head(packet, &eth, 1);
}
