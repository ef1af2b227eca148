/* want: constant */
#include <pergola/program.h>

const volatile uint32_t constant = 1;


PERGOLA_PARSE(packet)
{
	*(volatile uint32_t *)&constant = packet->length; /* here */
	return constant & 1;
}
