/* want: takes the address of a function */
#include <pergola/program.h>

static long (*const helper)(uint32_t, void *, void *, uint64_t) = (void *)181;

static long turn(uint32_t i, void *p)
{
	(void)i;
	(void)p;
	return 0;
}


PERGOLA_PARSE(packet)
{
	helper(1 << 23, turn, packet, 0); /* here */
	return PERGOLA_DROP;
}
