/* want: computes with an address|stores an address */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	*(volatile uint32_t *)packet->key = (uint64_t)packet >> 32; /* here */
	return PERGOLA_SEND;
}
