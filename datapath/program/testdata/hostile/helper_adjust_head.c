/* want: calls bpf_xdp_adjust_head */
#include <pergola/program.h>

static long (*const helper)(void *, int) = (void *)44;


PERGOLA_PARSE(packet)
{
	helper(packet, -64); /* here */
	return PERGOLA_DROP;
}
