/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Looks keys up by the thousand, as a packet program does: for the tests and benchmarks of package filter. */
#include "../../bpf/filter.h"

#define MAX_LOOKUPS (1 << 16)

/* What to look up. */
struct order {
	__u32 table;
	__u32 count;   /* lookups */
	__u32 filters; /* benchmarks: of the table, whose keys draw_key() makes */
	__u32 seed;
	__u64 sum; /* of what benchmarks found */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

/* A key goes in; next to it, what was found comes out. */
struct lookup {
	struct filter_key key;
	__u64 result; /* its first word */
	__u64 version;
	__u64 rank;
	__u64 all; /* first bytes of the results of all matches, the last one's in the lowest byte */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LOOKUPS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lookup);
} lookups SEC(".maps");

/* As programs have it: in their memory of a processor. */
struct work {
	struct filter_key key;
	struct filter_match match;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

struct turn {
	struct order *order;
	struct work *work;
};

static __always_inline void write_down(struct lookup *l, const struct filter_match *m)
{
	l->version = m->version;
	l->rank = m->rank;
	l->result = m->filter ? m->result.word[0] : 0;
}

static long look_up(__u32 i, const struct turn *t)
{
	struct lookup *l = bpf_map_lookup_elem(&lookups, &i);

	if (!l)
		return 1;
	filter_lookup(t->order->table, &l->key, &t->work->match);
	write_down(l, &t->work->match);
	return 0;
}

static long look_up_all(__u32 i, const struct turn *t)
{
	struct lookup *l = bpf_map_lookup_elem(&lookups, &i);
	struct filter_match *m = &t->work->match;

	if (!l)
		return 1;
	l->all = 0;
	m->filter = 0;
	for (int n = 0; n < 8 && filter_find(t->order->table, &l->key, m); n++)
		l->all = l->all << 8 | (__u8)m->result.word[0];
	l->version = m->version;
	return 0;
}

static __always_inline __u64 spread(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	return x ^ x >> 32;
}

/* The key of a filter that is drawn at random: made, and not read, so that the cache is the filters' own. */
static __always_inline void draw_key(__u32 i, const struct turn *t)
{
	__u64 n = (spread((__u64)t->order->seed << 32 | i) >> 32) * t->order->filters >> 32;

#pragma unroll
	for (int word = 0; word < FILTER_WORDS; word++)
		t->work->key.word[word] = spread(n * FILTER_WORDS + word + 1);
}

static long look_up_any(__u32 i, const struct turn *t)
{
	draw_key(i, t);
	filter_lookup(t->order->table, &t->work->key, &t->work->match);
	t->order->sum += t->work->match.result.word[0];
	return 0;
}

/* All but the lookup. */
static long look_nowhere(__u32 i, const struct turn *t)
{
	draw_key(i, t);
	t->order->sum += t->work->match.result.word[0];
	return 0;
}

#define LOOP(name)                                                            \
	SEC("tc")                                                             \
	int loop_##name(struct __sk_buff *skb)                                \
	{                                                                     \
		__u32 zero = 0;                                               \
		struct turn t = {                                             \
			.order = bpf_map_lookup_elem(&orders, &zero),         \
			.work = bpf_map_lookup_elem(&works, &zero),           \
		};                                                            \
                                                                              \
		(void)skb;                                                    \
		if (!t.order || !t.work)                                      \
			return 1;                                             \
		t.order->sum = 0;                                             \
		return bpf_loop(t.order->count, name, &t, 0) != t.order->count; \
	}

LOOP(look_up)
LOOP(look_up_all)
LOOP(look_up_any)
LOOP(look_nowhere)

/* Put the types into the object's BTF, for the test that Go has the same; nothing uses them. */
struct filter *a_filter __attribute__((unused));
struct filter_chunk *a_chunk __attribute__((unused));
struct filter_mask *a_mask __attribute__((unused));

char _license[] SEC("license") = "Dual BSD/GPL";
