/* want: declares map table */
#include <pergola/program.h>

PERGOLA_MAP_(table, 1 /* hash */, 0, uint64_t, 16);


PERGOLA_PARSE(packet)
{
	uint32_t key = 1;

	return pergola_map_lookup_(&table, &key) != NULL;
}
