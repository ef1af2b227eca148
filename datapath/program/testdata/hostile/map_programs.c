/* want: declares map programs */
#include <pergola/program.h>

PERGOLA_MAP_(programs, 3 /* of programs */, 0, uint32_t, 16);


PERGOLA_PARSE(packet)
{
	uint32_t key = 1;

	return pergola_map_lookup_(&programs, &key) != NULL;
}
