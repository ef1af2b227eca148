/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * burner: computes, and notes when it did not: figure 5 of SPP.
 *
 *	burner CORE MILLISECONDS
 *
 * It reads the clock all the time. Between two readings that are further apart than 100 us, others had the core: each
 * such gap is a line, in nanoseconds.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GAP 100000
#define MOST 100000

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	static uint64_t gaps[MOST];
	uint64_t last, end;
	cpu_set_t core;
	int n = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: burner CORE MILLISECONDS\n");
		return 2;
	}
	CPU_ZERO(&core);
	CPU_SET(atoi(argv[1]), &core);
	if (sched_setaffinity(0, sizeof(core), &core)) {
		perror("burner: stay on a core");
		return 1;
	}
	last = now();
	end = last + (uint64_t)atoi(argv[2]) * 1000000u;
	while (last < end && n < MOST) {
		uint64_t t = now();

		if (t - last > GAP)
			gaps[n++] = t - last;
		last = t;
	}
	for (int i = 0; i < n; i++)
		printf("%llu\n", (unsigned long long)gaps[i]);
	return 0;
}
