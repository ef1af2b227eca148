/* want: beyond the window|pointer */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	int32_t i = packet->start;

	if (i > 10)
		return PERGOLA_DROP;
	return packet->window[i] & 1; /* here */
}
