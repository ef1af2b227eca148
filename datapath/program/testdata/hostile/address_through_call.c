/* want: stores an address */
#include <pergola/program.h>

static __attribute__((noinline)) void keep(struct pergola_packet *p, uint64_t n)
{
	*(volatile uint64_t *)p->key = n; /* here */
}


PERGOLA_PARSE(packet)
{
	keep(packet, (uint64_t)packet);
	return PERGOLA_DROP;
}
