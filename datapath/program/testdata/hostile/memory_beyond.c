/* want: beyond memory */
#include <pergola/program.h>

PERGOLA_MEMORY(uint64_t, 16);


PERGOLA_PARSE(packet)
{
	uint64_t *m = pergola_memory(0);

	return m ? m[1] & 1 : 0; /* here */
}
