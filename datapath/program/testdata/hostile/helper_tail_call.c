/* want: calls bpf_tail_call */
#include <pergola/program.h>

static long (*const helper)(void *, void *, uint32_t) = (void *)12;


PERGOLA_PARSE(packet)
{
	helper(packet, packet, 0); /* here */
	return PERGOLA_DROP;
}
