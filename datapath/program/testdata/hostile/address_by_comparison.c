/* want: compares an address */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	uint64_t p = (uint64_t)packet;

	if (p > packet->time) /* here */
		packet->flow = 1;
	return PERGOLA_DROP;
}
