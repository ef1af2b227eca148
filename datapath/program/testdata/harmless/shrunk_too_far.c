/* want: bad start */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->start = packet->length + 1;
	return PERGOLA_SEND;
}
