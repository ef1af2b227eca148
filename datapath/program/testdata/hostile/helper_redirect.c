/* want: calls bpf_redirect */
#include <pergola/program.h>

static long (*const helper)(uint32_t, uint64_t) = (void *)23;


PERGOLA_PARSE(packet)
{
	packet->flow = helper(1, 0); /* here */
	return PERGOLA_DROP;
}
