/* want: calls bpf_get_current_task */
#include <pergola/program.h>

static long (*const helper)(void) = (void *)35;


PERGOLA_PARSE(packet)
{
	packet->time = helper(); /* here */
	return PERGOLA_DROP;
}
