/* want: uses bpf_cast_to_kern_ctx, which is not defined */
#include <pergola/program.h>

void *bpf_cast_to_kern_ctx(void *p) __attribute__((section(".ksyms")));


PERGOLA_PARSE(packet)
{
	return bpf_cast_to_kern_ctx(packet) != NULL;
}
