/* want: scratch memory has */
#include <pergola/program.h>

PERGOLA_SCRATCH {
	uint8_t bytes[512];
};


PERGOLA_PARSE(packet, scratch)
{
	scratch->bytes[0] = 1;
	return packet->length & 1;
}
