/* want: beyond the window */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	*(volatile uint64_t *)((uint8_t *)packet + sizeof(*packet)) = 1; /* here */
	return PERGOLA_DROP;
}
