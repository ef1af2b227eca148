/* want: gave up|are to be checked */
#include <pergola/program.h>

#define CALLS(f) f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p), f(p)
#define LEVEL(n, below)                                              \
	__attribute__((noinline)) int f##n(struct pergola_packet *p) \
	{                                                            \
		if (!p)                                              \
			return 0;                                    \
		CALLS(below);                                        \
		return p->length;                                    \
	}

__attribute__((noinline)) int f0(struct pergola_packet *p)
{
	if (!p)
		return 0;
	p->flow++;
	return p->flow;
}
LEVEL(1, f0)
LEVEL(2, f1)
LEVEL(3, f2)
LEVEL(4, f3)
LEVEL(5, f4)


PERGOLA_PARSE(packet)
{
	return f5(packet) & 1;
}
