/* want: bad verdict */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	return -1 - packet->start;
}
