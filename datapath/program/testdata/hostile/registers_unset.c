/* want: not set|!read_ok */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	uint64_t x;

	__asm__ volatile("%[x] = r7" : [x] "=r"(x) : : "r7"); /* here */
	packet->time = x;
	return PERGOLA_DROP;
}
