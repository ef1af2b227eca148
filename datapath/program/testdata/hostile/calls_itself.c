/* want: calls itself */
#include <pergola/program.h>

__attribute__((noinline)) static int again(volatile struct pergola_packet *p, int n)
{
	if (n <= 0)
		return 0;
	p->flow++;
	return again(p, n - p->flow) + again(p, n - 2) + 1;
}


PERGOLA_PARSE(packet)
{
	return again(packet, 3);
}
