/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * delay: measures how long frames take from one of its nodes to another one, on hosts with one clock, or on one host.
 *
 * A node with two interfaces. What comes by interface 1 gets a header with the time, and leaves by 2; what comes by 2
 * loses it, and leaves by 1. The delay goes into a histogram in the slice's memory, which the slow path reads: bucket
 * i counts delays from 2^i to 2^(i+1) ns.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

#define BUCKETS 64
#define TYPE_STAMPED TYPE_LOCAL

/* Between Ethernet header and what was behind it. */
struct stamp {
	uint16_t type; /* of what is behind it */
	uint16_t pad;
	uint32_t high, low; /* ns, when it was put there */
};

PERGOLA_MEMORY(uint64_t, BUCKETS);

PERGOLA_COUNTERS {
	uint64_t stamped, measured, total_ns, unstamped, backwards;
};

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t i = 0;

	if (ns >> 32)
		i += 32, ns >>= 32;
	if (ns >> 16)
		i += 16, ns >>= 16;
	if (ns >> 8)
		i += 8, ns >>= 8;
	if (ns >> 4)
		i += 4, ns >>= 4;
	if (ns >> 2)
		i += 2, ns >>= 2;
	return i + (ns >> 1);
}

static int put_stamp(struct pergola_packet *packet)
{
	const int32_t more = sizeof(struct stamp);
	struct ethernet_header was = *pergola_header(packet, 0, struct ethernet_header);
	struct ethernet_header *eth = pergola_header(packet, -(int32_t)sizeof(struct stamp), struct ethernet_header);
	struct stamp *s = pergola_header(packet, PERGOLA_ETHERNET - (int32_t)sizeof(struct stamp), struct stamp);
	uint64_t now = pergola_time(packet);

	if (!pergola_grow(packet, more))
		return PERGOLA_DROP;
	*eth = was;
	eth->type = pergola_htons(TYPE_STAMPED);
	s->type = was.type;
	s->pad = 0;
	s->high = pergola_htonl((uint32_t)(now >> 32));
	s->low = pergola_htonl((uint32_t)now);
	pergola_count(stamped);
	packet->output = 2;
	return PERGOLA_SEND;
}

static int take_stamp(struct pergola_packet *packet)
{
	struct ethernet_header was = *pergola_header(packet, 0, struct ethernet_header);
	struct stamp s = *pergola_header(packet, PERGOLA_ETHERNET, struct stamp);
	struct ethernet_header *eth = pergola_header(packet, sizeof(struct stamp), struct ethernet_header);
	uint64_t then = (uint64_t)pergola_ntohl(s.high) << 32 | pergola_ntohl(s.low), now = pergola_time(packet);
	uint64_t *bucket;

	if (was.type != pergola_htons(TYPE_STAMPED) || packet->length < PERGOLA_ETHERNET + sizeof(s)) {
		pergola_count(unstamped);
		return PERGOLA_PUNT;
	}
	if (!pergola_shrink(packet, sizeof(s)))
		return PERGOLA_DROP;
	*eth = was;
	eth->type = s.type;
	if (now >= then) {
		bucket = pergola_memory(bucket_of(now - then));
		if (bucket)
			__sync_fetch_and_add(bucket, 1);
		pergola_count(measured);
		pergola_count(total_ns, now - then);
	} else {
		pergola_count(backwards);
	}
	packet->output = 1;
	return PERGOLA_SEND;
}

PERGOLA_PARSE(packet)
{
	switch (packet->interface) {
	case 1:
		return put_stamp(packet);
	case 2:
		return take_stamp(packet);
	}
	return PERGOLA_PUNT;
}
