/* want: bad verdict */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	return 77 + packet->start;
}
