// Format looks up again, drops some copies, and writes into each where it is from. Frames grow, shrink, or keep their
// length.
#include <pergola/program.h>

struct body {
	uint8_t bytes[17];
};

struct mark {
	uint8_t bytes[4];
};

PERGOLA_KEY {
	uint8_t bytes[16];
};

PERGOLA_SCRATCH {
	uint32_t formats;
};

PERGOLA_COUNTERS {
	uint64_t frames, copies, lookups;
};

PERGOLA_PARSE(packet)
{
	uint8_t *body = pergola_header(packet, 14, struct body)->bytes;

	for (int i = 0; i < 16; i++)
		pergola_key(packet)->bytes[i] = body[i];
	packet->table = body[16] & 3;
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result, scratch)
{
	uint16_t *word = pergola_header(packet, 30, uint16_t);
	uint8_t *mark = pergola_header(packet, -4, struct mark)->bytes;

	scratch->formats++;
	if (packet->copy) {
		pergola_count(copies);
		if (result->interface % 7 == 0)
			return PERGOLA_DROP;
		if (result->interface % 11 == 0)
			return PERGOLA_LOOKUP; /* no verdict of a copy's */
		if (result->interface % 13 == 0)
			packet->start++; /* not as the frame */
	} else {
		pergola_count(frames);
		if (result->interface % 3 == 0 && scratch->formats < 6) {
			pergola_count(lookups);
			pergola_key(packet)->bytes[0]++;
			packet->table ^= 4;
			return PERGOLA_LOOKUP;
		}
		if (result->interface % 3 == 1)
			pergola_grow(packet, 4);
		else if (result->interface % 5 == 0)
			pergola_shrink(packet, 2);
	}
	mark[0] = packet->copy;
	mark[1] = scratch->formats;
	word[0] += result->interface + packet->copy;
	return result->verdict;
}
