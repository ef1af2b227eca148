/* want: stores one */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	__sync_fetch_and_add((uint64_t *)packet->key, (uint64_t)packet); /* here */
	return PERGOLA_DROP;
}
