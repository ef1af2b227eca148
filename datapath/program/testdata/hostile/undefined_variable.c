/* want: uses jiffies, which is not defined */
#include <pergola/program.h>

extern uint64_t jiffies;


PERGOLA_PARSE(packet)
{
	packet->time = jiffies;
	return PERGOLA_DROP;
}
