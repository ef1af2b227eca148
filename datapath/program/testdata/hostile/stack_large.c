/* want: stack */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	volatile uint8_t local[480];

	for (int i = 0; i < 480; i++)
		local[i] = i;
	return local[packet->length % 480] & 1;
}
