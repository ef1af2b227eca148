/* want: declares map program_filters */
#include <pergola/program.h>

PERGOLA_MAP_(program_filters, 2 /* array */, 0, uint64_t, 1);


PERGOLA_PARSE(packet)
{
	uint32_t key = 0;

	return pergola_map_lookup_(&program_filters, &key) != NULL;
}
