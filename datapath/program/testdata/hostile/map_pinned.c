/* want: declares map ports */
#include <pergola/program.h>

struct {
	int (*type)[2];
	int (*max_entries)[16384];
	int (*pinning)[1];
	uint32_t *key;
	uint64_t *value;
} ports PERGOLA_SECTION_(".maps");


PERGOLA_PARSE(packet)
{
	uint32_t key = 0;

	return pergola_map_lookup_(&ports, &key) != NULL;
}
