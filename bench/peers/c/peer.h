/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What forwarders in user space have in common. _GNU_SOURCE is defined before.
 */
#pragma once

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Stays on a core, for so many seconds at most. */
static inline void begin(const char *cpu, const char *seconds)
{
	cpu_set_t core;

	CPU_ZERO(&core);
	CPU_SET(atoi(cpu), &core);
	if (sched_setaffinity(0, sizeof(core), &core))
		fail("stay on a core");
	alarm((unsigned)atoi(seconds));
}

/* Says that frames are forwarded from now on. */
static inline void say_ready(void)
{
	puts("ready");
	fflush(stdout);
}

static inline void read_mac(unsigned char *to, const char *text)
{
	unsigned b[6];

	if (sscanf(text, "%x:%x:%x:%x:%x:%x", b, b + 1, b + 2, b + 3, b + 4, b + 5) != 6) {
		fprintf(stderr, "%s: %s is no Ethernet address\n", program_invocation_short_name, text);
		exit(2);
	}
	for (int i = 0; i < 6; i++)
		to[i] = (unsigned char)b[i];
}
