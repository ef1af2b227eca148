/* want: calls bpf_trace_printk */
#include <pergola/program.h>

static long (*const helper)(const char *, uint32_t) = (void *)6;


PERGOLA_PARSE(packet)
{
	helper((const char *)packet->key, 8); /* here */
	return PERGOLA_DROP;
}
