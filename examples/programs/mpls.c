/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * mpls: a label switching router (RFC 3031, 3032): swaps, pops and pushes one label.
 *
 * Filters match the label, and for packets without one (IPv4, at the edge) the destination. The arguments of a result
 * are what to do, the new label, and the Ethernet addresses of the next hop and of the interface.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

PERGOLA_KEY {
	uint32_t label; /* in the lower 20 bits; all ones where there is none */
	uint32_t destination; /* of a packet without a label */
};

#define NO_LABEL 0xffffffff

enum operation { SWAP, POP, PUSH };

/* A result's arguments. */
struct instruction {
	uint8_t to[6];
	uint8_t from[6];
	uint8_t operation; /* enum operation */
	uint8_t pad[3];
	uint32_t label; /* network order, in the lower 20 bits; of SWAP and PUSH */
};

PERGOLA_SCRATCH {
	uint32_t entry; /* the label stack entry on top, host order; of IPv4 its TTL */
};

PERGOLA_COUNTERS {
	uint64_t swapped, popped, pushed, expired, other;
};

enum reason { NO_FILTER, OTHER_TYPE, EXPIRED, NOT_LAST };

#define BOTTOM 0x100 /* of the stack */
#define LABEL(entry) ((entry) >> 12)

static int punt(struct pergola_packet *packet, enum reason why)
{
	packet->reason = why;
	return PERGOLA_PUNT;
}

PERGOLA_PARSE(packet, scratch)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct mpls_entry *top = pergola_header(packet, PERGOLA_ETHERNET, struct mpls_entry);
	struct ipv4_header *ip = pergola_header(packet, PERGOLA_ETHERNET, struct ipv4_header);
	struct pergola_key *key = pergola_key(packet);

	if (eth->type == pergola_htons(TYPE_MPLS) && packet->length >= PERGOLA_ETHERNET + sizeof(*top)) {
		scratch->entry = pergola_ntohl(top->word);
		key->label = pergola_htonl(LABEL(scratch->entry));
	} else if (eth->type == pergola_htons(TYPE_IPV4) && packet->length >= PERGOLA_ETHERNET + sizeof(*ip)) {
		scratch->entry = BOTTOM | ip->ttl;
		key->label = NO_LABEL;
		key->destination = ip->destination;
	} else {
		pergola_count(other);
		return punt(packet, OTHER_TYPE);
	}
	if ((scratch->entry & 0xff) <= 1) {
		pergola_count(expired);
		return punt(packet, EXPIRED);
	}
	return PERGOLA_LOOKUP;
}

/* Writes Ethernet header where the frame begins now. */
static void address(struct pergola_packet *packet, const struct instruction *do_, int32_t at, uint16_t type)
{
	struct ethernet_header *eth = pergola_at(packet, at, sizeof(*eth));

	if (!eth)
		return;
	__builtin_memcpy(eth->to, do_->to, sizeof(eth->to));
	__builtin_memcpy(eth->from, do_->from, sizeof(eth->from));
	eth->type = pergola_htons(type);
}

PERGOLA_FORMAT(packet, result, scratch)
{
	const struct instruction *do_ = (const struct instruction *)result->arguments;
	const bool labelled = pergola_key(packet)->label != NO_LABEL;
	uint32_t label = pergola_ntohl(do_->label) << 12, ttl = (scratch->entry & 0xff) - 1;

	switch (do_->operation) {
	case SWAP:
		if (!labelled)
			return PERGOLA_DROP;
		pergola_header(packet, PERGOLA_ETHERNET, struct mpls_entry)->word =
			pergola_htonl(label | (scratch->entry & 0xf00) | ttl);
		address(packet, do_, 0, TYPE_MPLS);
		pergola_count(swapped);
		return result->verdict;
	case PUSH: /* on top of the stack, or of IPv4; an IPv4 header is left as it is (RFC 3443, pipe model) */
		if (!pergola_grow(packet, sizeof(struct mpls_entry)))
			return PERGOLA_DROP;
		pergola_header(packet, PERGOLA_ETHERNET - 4, struct mpls_entry)->word =
			pergola_htonl(label | (labelled ? 0 : BOTTOM) | ttl);
		address(packet, do_, -4, TYPE_MPLS);
		pergola_count(pushed);
		return result->verdict;
	case POP:
		if (!labelled || !pergola_shrink(packet, sizeof(struct mpls_entry)))
			return PERGOLA_DROP;
		if (scratch->entry & BOTTOM) {
			address(packet, do_, 4, TYPE_IPV4);
		} else { /* the label below takes the TTL over (RFC 3443, uniform model) */
			struct mpls_entry *below =
				pergola_header(packet, PERGOLA_ETHERNET + 4, struct mpls_entry);

			below->word = (below->word & pergola_htonl(0xffffff00)) | pergola_htonl(ttl);
			address(packet, do_, 4, TYPE_MPLS);
		}
		pergola_count(popped);
		return result->verdict;
	}
	return PERGOLA_DROP;
}
