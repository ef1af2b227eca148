/* want: local variable|stack|pointer */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	volatile uint8_t local[16];

	for (int i = 0; i < 16; i++)
		local[i] = i;
	return local[packet->length] & 1; /* here */
}
