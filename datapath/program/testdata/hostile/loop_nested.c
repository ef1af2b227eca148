/* want: gave up|are to be checked */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	for (uint32_t i = 0; i < 300; i++)
		for (uint32_t j = 0; j < 300; j++)
			packet->key[(i ^ j) & 63] += j;
	return PERGOLA_DROP;
}
