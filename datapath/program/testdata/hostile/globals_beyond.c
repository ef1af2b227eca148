/* want: beyond memory */
#include <pergola/program.h>

uint8_t table[16];


PERGOLA_PARSE(packet)
{
	return table[packet->length]; /* here */
}
