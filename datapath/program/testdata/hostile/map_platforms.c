/* want: declares map filter_index */
#include <pergola/program.h>

PERGOLA_MAP_(filter_index, 2 /* array */, 0, uint64_t, 1);


PERGOLA_PARSE(packet)
{
	uint32_t key = 0;

	return pergola_map_lookup_(&filter_index, &key) != NULL;
}
