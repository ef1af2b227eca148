/* want:  */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	packet->length = 0xffffffff;
	packet->loaded = 0xffff;
	packet->table = 0xffffffff;
	return PERGOLA_SEND;
}
