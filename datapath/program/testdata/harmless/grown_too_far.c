/* want: bad start */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->start = -129;
	return PERGOLA_SEND;
}
