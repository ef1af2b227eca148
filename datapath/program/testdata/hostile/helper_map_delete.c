/* want: calls bpf_map_delete_elem */
#include <pergola/program.h>

static long (*const helper)(void *, const void *) = (void *)3;


PERGOLA_PARSE(packet)
{
	helper(packet, packet->key); /* here */
	return PERGOLA_DROP;
}
