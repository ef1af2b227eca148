/* want: calls bpf_probe_read_kernel */
#include <pergola/program.h>

static long (*const helper)(void *, uint32_t, const void *) = (void *)113;


PERGOLA_PARSE(packet)
{
	helper(packet->key, 64, (void *)0xffffffff81000000); /* here */
	return PERGOLA_DROP;
}
