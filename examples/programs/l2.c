/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * l2: a learning switch. Its table is the slice's memory: which interface leads to a station.
 *
 * An entry is one word, so a core sees it before or after another core changes it, and never between. A station that
 * finds its place taken takes it: tables are caches, and what is not in them is flooded.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

#define STATIONS 65536

struct station {
	uint64_t word; /* Ethernet address in the upper 48 bits, interface in the lower 16; 0: free */
};

PERGOLA_MEMORY(struct station, STATIONS);

PERGOLA_COUNTERS {
	uint64_t learned, sent, flooded, filtered, malformed;
};

static uint64_t read_address(const uint8_t *a)
{
	uint64_t value = 0;

	for (int i = 0; i < 6; i++)
		value = value << 8 | a[i];
	return value;
}

static struct station *find(uint64_t address)
{
	return pergola_memory((uint32_t)(address * 0x9e3779b97f4a7c15ULL >> 48));
}

static void learn(uint64_t address, uint32_t interface)
{
	struct station *s = find(address);
	uint64_t word = address << 16 | (interface & 0xffff);

	if (!s || *(volatile uint64_t *)&s->word == word) /* most frames teach nothing: no store, no traffic between cores */
		return;
	*(volatile uint64_t *)&s->word = word;
	pergola_count(learned);
}

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	uint64_t to = read_address(eth->to), from = read_address(eth->from), word;
	struct station *s;

	if (eth->from[0] & 1 || !from) { /* no station's address */
		pergola_count(malformed);
		return PERGOLA_DROP;
	}
	learn(from, packet->interface);
	packet->flood = packet->interfaces & ~(1ULL << (packet->interface & 63));
	s = find(to);
	word = s ? *(volatile uint64_t *)&s->word : 0;
	if (eth->to[0] & 1 || word >> 16 != to) {
		pergola_count(flooded);
		return packet->flood ? PERGOLA_FLOOD : PERGOLA_DROP;
	}
	packet->output = word & 0xffff;
	if (packet->output == packet->interface) { /* the station heard it */
		pergola_count(filtered);
		return PERGOLA_DROP;
	}
	pergola_count(sent);
	return PERGOLA_SEND;
}
