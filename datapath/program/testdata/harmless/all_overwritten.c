/* want: bad start */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	for (uint32_t i = 0; i < sizeof(*packet); i++)
		((volatile uint8_t *)packet)[i] = 0x7f;
	return PERGOLA_SEND;
}
