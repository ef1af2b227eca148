/* want: may be NULL */
#include <pergola/program.h>

PERGOLA_MEMORY(uint64_t, 16);


PERGOLA_PARSE(packet)
{
	return *pergola_memory(packet->length) & 1; /* here */
}
