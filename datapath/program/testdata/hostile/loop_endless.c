/* want: loop without an end|gave up */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	uint32_t i = packet->length;

	while (i != 1) {
		i = i & 1 ? 3 * i + 1 : i / 2;
		*(volatile uint32_t *)&packet->flow = i;
	}
	return PERGOLA_DROP;
}
