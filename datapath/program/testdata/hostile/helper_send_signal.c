/* want: calls bpf_send_signal */
#include <pergola/program.h>

static long (*const helper)(uint32_t) = (void *)109;


PERGOLA_PARSE(packet)
{
	helper(9); /* here */
	return PERGOLA_DROP;
}
