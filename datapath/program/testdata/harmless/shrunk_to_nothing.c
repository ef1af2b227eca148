/* want: too short */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->start = packet->length;
	return PERGOLA_SEND;
}
