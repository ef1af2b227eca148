/* want: gave up|are to be checked */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
#define ASK(i)                                     \
	if (packet->window[(x + i) & 255] & 1 << (i % 8)) \
		x = x * 5 + i;                             \
	else                                       \
		x = x * 3 + 7 * i;                         \
	x &= 255;
#define ASK8(i) ASK(i) ASK(i + 1) ASK(i + 2) ASK(i + 3) ASK(i + 4) ASK(i + 5) ASK(i + 6) ASK(i + 7)
#define ASK64(i) ASK8(i) ASK8(i + 8) ASK8(i + 16) ASK8(i + 24) ASK8(i + 32) ASK8(i + 40) ASK8(i + 48) ASK8(i + 56)
	uint64_t x = 1;

	ASK64(0)
	ASK64(64)
	ASK64(128)
	packet->flow = x;
	return PERGOLA_DROP;
}
