/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Looks destinations up by the thousand, as the walk does: for the tests and benchmarks of package fib. */
#include "../../bpf/fib.h"

#define MAX_LOOKUPS (1 << 20)

/* Which destinations: the first `count` of the map below. */
struct order {
	__u32 root;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

/* A destination goes in; next to it, the next hop comes out. The flow's hash is the lookup's number. */
struct lookup {
	__u8 destination[16];
	__u32 nexthop;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LOOKUPS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lookup);
} lookups SEC(".maps");

/* The index of a next hop; in place of the walk's choice from a group, the hash's. */
static __always_inline __u32 find_route(__u32 root, const __u8 *destination, int bytes, __u32 hash)
{
	__u32 entry = find_entry(root, destination, bytes, 0);

	if (ENTRY_TYPE(entry) == ENTRY_GROUP)
		entry = node_entry(ENTRY_INDEX(entry), (__u8)hash);
	return ENTRY_TYPE(entry) == ENTRY_LEAF ? ENTRY_INDEX(entry) : 0;
}

static long look_up4(__u32 i, const __u32 *root)
{
	struct lookup *l = bpf_map_lookup_elem(&lookups, &i);

	if (!l)
		return 1;
	l->nexthop = find_route(*root, l->destination, 4, i);
	return 0;
}

static long look_up6(__u32 i, const __u32 *root)
{
	struct lookup *l = bpf_map_lookup_elem(&lookups, &i);

	if (!l)
		return 1;
	l->nexthop = find_route(*root, l->destination, 16, i);
	return 0;
}

/* All but the lookup. */
static long look_nowhere(__u32 i, const __u32 *root)
{
	struct lookup *l = bpf_map_lookup_elem(&lookups, &i);

	if (!l)
		return 1;
	l->nexthop = *root + l->destination[0] + l->destination[15];
	return 0;
}

#define LOOP(name)                                                            \
	SEC("tc")                                                             \
	int loop_##name(struct __sk_buff *skb)                                \
	{                                                                     \
		__u32 zero = 0, root;                                         \
		const struct order *o = bpf_map_lookup_elem(&orders, &zero);  \
                                                                              \
		(void)skb;                                                    \
		if (!o)                                                       \
			return 1;                                             \
		root = o->root;                                               \
		return bpf_loop(o->count, name, &root, 0) != o->count;        \
	}

LOOP(look_up4)
LOOP(look_up6)
LOOP(look_nowhere)

/* Put the types into the object's BTF, for the test that Go has the same; nothing uses them. */
enum entry_type *entry_types __attribute__((unused));
enum nexthop_kind *nexthop_kinds __attribute__((unused));
enum leg_flags *leg_flag_names __attribute__((unused));
struct node *a_node __attribute__((unused));
struct path *a_path __attribute__((unused));

char _license[] SEC("license") = "Dual BSD/GPL";
