/* want: part of an address */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	struct pergola_packet *volatile p = packet;

	packet->flow = ((volatile uint8_t *)&p)[3]; /* here */
	return PERGOLA_DROP;
}
