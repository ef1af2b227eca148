/* want: number as a pointer */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	return *(volatile uint8_t *)(packet->time) & 1; /* here */
}
