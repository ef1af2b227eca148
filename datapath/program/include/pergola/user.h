/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * pergola/user.h: what pergola/program.h is in user space. Programs include that one.
 */
#ifndef PERGOLA_USER_H
#define PERGOLA_USER_H

#include <stdlib.h>
#include <time.h>

#define PERGOLA_NOTE_(name)

/* What a program has, for the code that runs it (pergola/run.c). */
extern uint64_t pergola_counter_values[PERGOLA_MAX_COUNTERS];
extern const uint32_t pergola_scratch_size;
struct pergola_memory_area {
	void *start;
	uint64_t size;
};
extern const struct pergola_memory_area pergola_memory_area __attribute__((weak)); /* not there: it has no memory */

#define PERGOLA_PARSE_1_(packet)                                                                                       \
	const uint32_t pergola_scratch_size = 0;                                                                       \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet);                                             \
	int pergola_parse(struct pergola_packet *pergola_p, void *pergola_s);                                          \
	int pergola_parse(struct pergola_packet *pergola_p, void *pergola_s)                                           \
	{                                                                                                              \
		(void)pergola_s;                                                                                       \
		return pergola_parse_(pergola_p);                                                                      \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet)
#define PERGOLA_PARSE_2_(packet, scratch)                                                                              \
	const uint32_t pergola_scratch_size = sizeof(struct pergola_scratch);                                          \
	_Static_assert(sizeof(struct pergola_scratch) <= PERGOLA_SCRATCH_SIZE, "scratch memory is too large");         \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet, struct pergola_scratch *scratch);            \
	int pergola_parse(struct pergola_packet *pergola_p, struct pergola_scratch *pergola_s);                        \
	int pergola_parse(struct pergola_packet *pergola_p, struct pergola_scratch *pergola_s)                         \
	{                                                                                                              \
		return pergola_parse_(pergola_p, pergola_s);                                                           \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet, struct pergola_scratch *scratch)
#define PERGOLA_FORMAT_1_(packet, result)                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result);             \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r, void *pergola_s);       \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r, void *pergola_s)        \
	{                                                                                                              \
		(void)pergola_s;                                                                                       \
		return pergola_format_(pergola_p, pergola_r);                                                          \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result)
#define PERGOLA_FORMAT_2_(packet, result, scratch)                                                                     \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result,              \
					    struct pergola_scratch *scratch);                                          \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r,                         \
			   struct pergola_scratch *pergola_s);                                                         \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r,                         \
			   struct pergola_scratch *pergola_s)                                                          \
	{                                                                                                              \
		return pergola_format_(pergola_p, pergola_r, pergola_s);                                               \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result,              \
					    struct pergola_scratch *scratch)

#define PERGOLA_MEMORY(type, count)                                                                                    \
	static type pergola_memory_block_[count];                                                                      \
	const struct pergola_memory_area pergola_memory_area = {pergola_memory_block_, sizeof(pergola_memory_block_)}; \
	PERGOLA_INLINE_ type *pergola_memory(uint32_t index)                                                           \
	{                                                                                                              \
		return index < (count) ? &pergola_memory_block_[index] : NULL;                                         \
	}                                                                                                              \
	_Static_assert((uint64_t)sizeof(type) * (count) <= 16 << 20, "at most 16 MiB")

#define PERGOLA_COUNTERS                                                                                               \
	struct pergola_counters;                                                                                       \
	struct pergola_counters
#define PERGOLA_COUNT_2_(name, number)                                                                                 \
	do {                                                                                                           \
		_Static_assert(sizeof(struct pergola_counters) <= sizeof(pergola_counter_values), "too many counters");\
		((struct pergola_counters *)pergola_counter_values)->name += (number);                                 \
	} while (0)

PERGOLA_INLINE_ uint64_t pergola_time(struct pergola_packet *packet)
{
	struct timespec now;

	if (!packet->time && !clock_gettime(CLOCK_MONOTONIC, &now))
		packet->time = now.tv_sec * 1000000000ULL + now.tv_nsec;
	return packet->time;
}

PERGOLA_INLINE_ uint32_t pergola_random(void) { return (uint32_t)random() << 16 ^ random(); }

#endif
