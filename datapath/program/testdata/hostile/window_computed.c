/* want: beyond the window */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	return packet->window[packet->length] & 1; /* here */
}
