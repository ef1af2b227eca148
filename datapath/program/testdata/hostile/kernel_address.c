/* want: number as a pointer|pointer */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	return *(volatile uint8_t *)0xffffffff81000000 & 1; /* here */
}
