/* want: memory takes|16 MiB */
#include <pergola/program.h>

PERGOLA_MAP_(pergola_memory_map, 2, 1 << 10, uint64_t, 1 << 24);


PERGOLA_PARSE(packet)
{
	return pergola_map_lookup_(&pergola_memory_map, packet->key) != NULL;
}
