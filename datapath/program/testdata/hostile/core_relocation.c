/* want: field of the kernel */
#include <pergola/program.h>

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));


PERGOLA_PARSE(packet)
{
	struct task_struct *t = (void *)packet;

	return t->pid & 1; /* here */
}
