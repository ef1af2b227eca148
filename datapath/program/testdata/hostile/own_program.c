/* want: section xdp */
#include <pergola/program.h>

PERGOLA_SECTION_("xdp") int other(void *ctx)
{
	return ctx != NULL;
}


PERGOLA_PARSE(packet)
{
	return PERGOLA_DROP;
}
