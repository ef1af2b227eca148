/* want: bad verdict */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->miss = 0xffffffff;
	return PERGOLA_LOOKUP;
}
