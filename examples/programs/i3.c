/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * i3: the fast path of a server of I3, the Internet Indirection Infrastructure (docs/i3.md), which sends packets to
 * identifiers of 256 bits.
 *
 * Data for another server's identifiers goes on by the ring: intervals of keys (the first 128 bits) in memory, in which
 * a binary search finds the next server. Data for the server's own identifiers is looked up: filters are prefixes of
 * 128 to 256 bits, and the longest has the highest priority. A filter's arguments are where the packet goes; of those
 * that send by interface 0, the identifier that takes the place of its own, which is looked up then. Where several
 * receivers want a packet, there is a filter for each, and all but the last have `more`. All else goes to the slow path,
 * i3d, which writes memory and filters: triggers and messages of the ring, packets that are to have further identifiers,
 * those that may not be sent on, and those to neighbors whose Ethernet address is not known. i3/fastpath/layout has the
 * other side of what is declared here.
 *
 * What leaves is what i3d would send: the same I3 packet, from the server's address, with a new TTL.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

#define POINTS 128   /* of the ring, at most; a power of two */
#define INTERFACES 8 /* whose Ethernet addresses are known: numbers 1 to 7 */

struct udp_header {
	struct port_numbers ports;
	uint16_t length;
	uint16_t checksum;
};

enum { DATA = 1, DELIVERY = 16 };

struct i3_packet {
	uint8_t version;
	uint8_t type;
	uint8_t hops; /* servers that may still send it on */
	uint8_t depth;
	uint16_t copies;
	uint16_t length; /* of what follows the identifiers */
	uint32_t id[8];
};

#define AT_IP PERGOLA_ETHERNET
#define AT_UDP (AT_IP + 20)
#define AT_I3 (AT_UDP + 8)
#define I3_HEADER 8
#define MOST_COPIES 1024 /* of a packet; more count as so many */

PERGOLA_KEY {
	uint8_t id[32] __attribute__((aligned(4)));
};

/* Where a packet goes. A filter's arguments begin with it. */
struct hop {
	uint8_t to[6];
	uint8_t from[6];
	uint32_t address; /* with the port in network order */
	uint16_t port;
	uint8_t kind; /* of the ring's: enum hop_kind; of a filter's: how many receivers there are, or 0 */
	uint8_t pad;
	uint32_t interface; /* of the ring's; a filter's result has its own */
};

enum hop_kind { UNKNOWN, OWN, NEXT };

struct point {
	uint64_t high, low; /* host order */
};

/*
 * The ring: keys above point i - 1, up to and with point i, go to hop i. The last point is the highest key.
 * i3d writes the ring that is not in use, and then makes it the active one by one store.
 */
struct ring {
	uint64_t version; /* never the same again; 0: it is being written. In element 0: which element is active */
	uint32_t address; /* the server's; with the port in network order */
	uint16_t port;
	uint16_t pad;
	uint8_t own[INTERFACES][8]; /* Ethernet addresses of the node, by interface */
	struct point points[POINTS];
	struct hop hops[POINTS];
};

PERGOLA_MEMORY(struct ring, 3);

PERGOLA_COUNTERS {
	uint64_t passed, delivered, copied, redirected, not_data, spent, no_next_hop, not_ours;
};

/* Reasons of punts, for the slow path. */
enum reason { NO_FILTER, NOT_OURS, NOT_DATA, SPENT, NO_NEXT_HOP };

/* Parse looks at the ring in use, format at the same. */
PERGOLA_SCRATCH {
	uint32_t ring;
	uint32_t redirects;
	uint64_t version;
	struct hop hop;
};

PERGOLA_INLINE_ int punt(struct pergola_packet *packet, enum reason why)
{
	packet->reason = why;
	return PERGOLA_PUNT;
}

/* 1 if a < b, else 0, without a branch: the kernel's verifier follows one path through the search and not 128. */
PERGOLA_INLINE_ uint64_t below(uint64_t a, uint64_t b)
{
	uint64_t difference = a - b;

	PERGOLA_OPAQUE_(difference);
	return ((~a & b) | ((~a | b) & difference)) >> 63;
}

PERGOLA_INLINE_ uint64_t differ(uint64_t a, uint64_t b)
{
	uint64_t bits = a ^ b, negative = -bits;

	PERGOLA_OPAQUE_(negative);
	return (bits | negative) >> 63;
}

/* Finds out where a key goes. False: the ring was changed meanwhile, or there is none. */
static bool find_hop(struct pergola_scratch *scratch, const uint32_t *id)
{
	struct ring *ring = pergola_memory(scratch->ring);
	uint64_t high = (uint64_t)pergola_ntohl(id[0]) << 32 | pergola_ntohl(id[1]);
	uint64_t low = (uint64_t)pergola_ntohl(id[2]) << 32 | pergola_ntohl(id[3]), at = 0;

	if (!ring || !scratch->version)
		return false;
	for (uint32_t half = POINTS / 2; half; half /= 2) {
		struct point *p = &ring->points[at + half - 1];

		at += half * (below(p->high, high) | ((differ(p->high, high) ^ 1) & below(p->low, low)));
	}
	scratch->hop = ring->hops[at];
	return *(volatile uint64_t *)&ring->version == scratch->version;
}

/* Sums of the words that are changed, of the IP header and, from there on, of what UDP's checksum covers. */
static uint16_t sum_header(struct pergola_packet *packet)
{
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);

	return ~pergola_fold((uint64_t)ip->source + ip->destination + *(uint16_t *)&ip->ttl);
}

static uint16_t sum_datagram(struct pergola_packet *packet)
{
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);

	return ~pergola_fold((uint64_t)ip->source + ip->destination + udp->ports.source + udp->ports.destination +
			     *(uint32_t *)i3 + i3->copies);
}

/*
 * Sends the packet from the server to a hop, as if i3d had received it and sent it. Copies of it are what the first one
 * is, but for where they go. copies: that may be made of each; 0: as many as came.
 */
static void rewrite(struct pergola_packet *packet, const struct hop *hop, uint8_t type, uint8_t hops, uint16_t copies)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);
	uint16_t header = sum_header(packet), datagram = sum_datagram(packet);

	__builtin_memcpy(eth->to, hop->to, sizeof(eth->to));
	__builtin_memcpy(eth->from, hop->from, sizeof(eth->from));
	if (!packet->copy) {
		ip->source = ip->destination; /* the server's own */
		udp->ports.source = udp->ports.destination;
		ip->ttl = 64;
		i3->type = type;
		i3->hops = hops;
		if (copies)
			i3->copies = copies;
	}
	ip->destination = hop->address;
	udp->ports.destination = hop->port;
	ip->checksum = pergola_fix_checksum(ip->checksum, header, sum_header(packet));
	if (udp->checksum) {
		udp->checksum = pergola_fix_checksum(udp->checksum, datagram, sum_datagram(packet));
		if (!udp->checksum) /* which would say that there is none */
			udp->checksum = 0xffff;
	}
}

PERGOLA_INLINE_ bool is_same_address(const uint8_t *a, const uint8_t *b)
{
	const uint16_t *x = (const uint16_t *)a, *y = (const uint16_t *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* Whether the frame is a whole I3 packet for the server, without anything behind it. */
static bool is_ours(struct pergola_packet *packet, const struct ring *ring)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);
	uint32_t length = pergola_ntohs(ip->length), interface = packet->interface;

	PERGOLA_OPAQUE_(interface);
	return eth->type == pergola_htons(TYPE_IPV4) && packet->length >= PERGOLA_ETHERNET + length &&
	       length >= 20 + 8 + sizeof(*i3) && ip->version_ihl == 0x45 &&
	       !(ip->fragment & pergola_htons(0x3fff)) && ip->protocol == PROTOCOL_UDP &&
	       ip->destination == ring->address && udp->ports.destination == ring->port && interface < INTERFACES &&
	       is_same_address(eth->to, ring->own[interface]) &&
	       pergola_ntohs(udp->length) == length - 20 && i3->version == 1 &&
	       length == 20 + 8 + I3_HEADER + 32 * (uint32_t)i3->depth + pergola_ntohs(i3->length);
}

PERGOLA_INLINE_ int pass(struct pergola_packet *packet, const struct hop *hop, uint8_t hops)
{
	if (hop->kind != NEXT) {
		pergola_count(no_next_hop);
		return punt(packet, NO_NEXT_HOP);
	}
	rewrite(packet, hop, DATA, hops, 0);
	packet->output = hop->interface;
	pergola_count(passed);
	return PERGOLA_SEND;
}

PERGOLA_PARSE(packet, scratch)
{
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);
	struct ring *ring = pergola_memory(0);

	if (ring) {
		scratch->ring = ring->version;
		ring = pergola_memory(scratch->ring);
	}
	if (ring)
		scratch->version = *(volatile uint64_t *)&ring->version;
	if (!ring || !is_ours(packet, ring)) {
		pergola_count(not_ours);
		return punt(packet, NOT_OURS);
	}
	if (i3->type != DATA || i3->depth < 1 || i3->depth > 8) {
		pergola_count(not_data);
		return punt(packet, NOT_DATA);
	}
	if (i3->hops < 2 || !i3->copies) {
		pergola_count(spent);
		return punt(packet, SPENT);
	}
	if (!find_hop(scratch, i3->id)) {
		pergola_count(no_next_hop);
		return punt(packet, NO_NEXT_HOP);
	}
	if (scratch->hop.kind != OWN)
		return pass(packet, &scratch->hop, i3->hops - 1);
	__builtin_memcpy(pergola_key(packet)->id, i3->id, sizeof(i3->id));
	packet->reason = NO_FILTER;
	return PERGOLA_LOOKUP;
}

/*
 * A trigger's identifier takes the place of the packet's. If that is another server's, the packet goes there; if it is
 * the server's own, it is looked up.
 */
PERGOLA_INLINE_ int redirect(struct pergola_packet *packet, const uint32_t *id, struct pergola_scratch *scratch)
{
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);
	uint64_t sum = (uint32_t)~*(uint32_t *)i3;

	if (i3->hops < 3 || !find_hop(scratch, id) || ++scratch->redirects >= PERGOLA_LOOKUPS)
		return punt(packet, NO_NEXT_HOP); /* as it came */
	i3->hops--;
	sum += *(uint32_t *)i3;
	for (int i = 0; i < 8; i++) {
		sum += (uint64_t)(uint32_t)~i3->id[i] + id[i];
		i3->id[i] = id[i];
	}
	if (udp->checksum)
		udp->checksum = pergola_fold((uint16_t)~udp->checksum + sum);
	pergola_count(redirected);
	if (scratch->hop.kind != OWN)
		return pass(packet, &scratch->hop, i3->hops - 1);
	__builtin_memcpy(pergola_key(packet)->id, id, sizeof(i3->id));
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result, scratch)
{
	struct i3_packet *i3 = pergola_header(packet, AT_I3, struct i3_packet);
	const struct hop *hop = (const struct hop *)result->arguments;
	uint32_t copies = 0;

	if (result->verdict != PERGOLA_SEND)
		return punt(packet, NO_FILTER);
	if (!result->interface)
		return redirect(packet, (const uint32_t *)result->arguments, scratch);
	if (hop->kind > 1 && !packet->copy) {
		copies = pergola_ntohs(i3->copies);
		if (copies > MOST_COPIES)
			copies = MOST_COPIES;
		copies /= hop->kind;
		if (!copies)
			return punt(packet, SPENT);
	}
	rewrite(packet, hop, DELIVERY, i3->hops - 1, pergola_htons(copies));
	if (packet->copy)
		pergola_count(copied);
	else
		pergola_count(delivered);
	return PERGOLA_SEND;
}
