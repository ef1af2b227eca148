/* want: stores an address */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	volatile uint64_t local = 1;

	*(volatile uint64_t *)packet->key = (uint64_t)&local; /* here */
	return PERGOLA_SEND;
}
