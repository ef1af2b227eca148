/* want: declared as */
#include <pergola/program.h>

PERGOLA_MAP_(pergola_memory_map, 12, 0, uint32_t, 16);


PERGOLA_PARSE(packet)
{
	return pergola_map_lookup_(&pergola_memory_map, packet->key) != NULL;
}
