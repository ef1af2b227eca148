/* want:  */
/* Cuts off 20 bytes of which it has read nothing, and puts them back. */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	if (!pergola_shrink(packet, 20))
		return PERGOLA_DROP;
	return pergola_grow(packet, 20) ? PERGOLA_SEND : PERGOLA_DROP;
}
