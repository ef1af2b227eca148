/* want: bad start */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->start = -0x7fffffff - 1;
	return PERGOLA_SEND;
}
