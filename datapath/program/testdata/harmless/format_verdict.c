/* want: bad verdict */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->miss = PERGOLA_SEND;
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	packet->flow = result->verdict;
	return PERGOLA_LOOKUP;
}
