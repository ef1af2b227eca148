/* want: global variables take */
#include <pergola/program.h>

uint8_t table[64 << 20];


PERGOLA_PARSE(packet)
{
	return table[packet->length % sizeof(table)];
}
