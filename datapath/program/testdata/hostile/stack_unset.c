/* want: that were not set */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	volatile uint64_t local[4];

	packet->time = local[2]; /* here */
	return PERGOLA_SEND;
}
