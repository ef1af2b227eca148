/* want: computes with an address */
#include <pergola/program.h>

PERGOLA_MEMORY(uint64_t, 4);


PERGOLA_PARSE(packet)
{
	uint64_t *m = pergola_memory(0);

	if (m)
		*(volatile uint64_t *)packet->key = (uint64_t)m - (uint64_t)packet; /* here */
	return PERGOLA_DROP;
}
