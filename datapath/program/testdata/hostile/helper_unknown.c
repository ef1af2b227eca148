/* want: calls bpf */
#include <pergola/program.h>

static long (*const helper)(void) = (void *)60000;


PERGOLA_PARSE(packet)
{
	helper(); /* here */
	return PERGOLA_DROP;
}
