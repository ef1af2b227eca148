/* want: classic BPF */
#include <pergola/program.h>


PERGOLA_PARSE(packet)
{
	uint64_t x;

	__asm__ volatile("r0 = *(u32 *)skb[0]\n%[x] = r0" : [x] "=r"(x) : : "r0"); /* here */
	packet->time = x;
	return PERGOLA_DROP;
}
