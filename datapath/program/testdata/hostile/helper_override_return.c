/* want: calls bpf_override_return */
#include <pergola/program.h>

static long (*const helper)(void *, uint64_t) = (void *)58;


PERGOLA_PARSE(packet)
{
	helper(packet, 0); /* here */
	return PERGOLA_DROP;
}
