/* want: uses find_filter, which is not defined */
#include <pergola/program.h>

int find_filter(struct pergola_packet *packet);


PERGOLA_PARSE(packet)
{
	return find_filter(packet);
}
