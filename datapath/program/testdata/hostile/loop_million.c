/* want: gave up|are to be checked */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	for (uint32_t i = 0; i < 1 << 20; i++)
		packet->key[i & 63] += i;
	return PERGOLA_DROP;
}
