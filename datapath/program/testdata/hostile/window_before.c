/* want: beyond the window */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	packet->flow = *(volatile uint32_t *)((uint8_t *)packet - 64); /* here */
	return PERGOLA_DROP;
}
