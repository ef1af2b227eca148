/* want: register points|address of a function */
#include <pergola/program.h>

static __attribute__((noinline)) int a(struct pergola_packet *p)
{
	return p->length & 1;
}

static __attribute__((noinline)) int b(struct pergola_packet *p)
{
	return p->start & 1;
}

static int (*const all[])(struct pergola_packet *p) = {a, b};


PERGOLA_PARSE(packet)
{
	return all[packet->length & 1](packet);
}
