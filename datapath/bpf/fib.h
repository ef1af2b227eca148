/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The mirror: what the programs know of each router's kernel. User space (package fib) writes, programs read.
 *
 *	port -> leg -> router -> FIB: nodes ... -> next hop -> port of the same router
 *
 * Routes are a trie with a stride of eight bits, as DPDK's rte_lpm has it: a node has one entry for each value of the
 * next byte of the destination, and an entry is either the answer or the way to the next node. What a prefix says is
 * pushed down into all entries that it decides. Where there is nothing but one prefix, or one node, for several
 * bytes, a record of the bits to compare takes the place of a chain of nodes (a Patricia trie's path). So a lookup is
 * at most one load of an entry per byte of the longest prefix that covers the destination, whatever the number of
 * routes, and a change is one store of 32 bits per entry: for each destination a program sees the old route or the
 * new one, never anything between.
 */
#pragma once

#include <bpf/bpf_endian.h>
#include "ports.h"

#define MAX_ROUTERS 4096   /* fib.MaxRouters */
#define MAX_NEXTHOPS 65536 /* fib.MaxNexthops; of all routers */
#define MAX_CHUNKS 2048	   /* of nodes: 2 GiB in all */
#define CHUNK_NODES 1024   /* nodes of a chunk: 1 MiB */
#define NODE_ENTRIES 256

/*
 * A leg is a router's end of a link: what the router's kernel says of the interface whose substrate end is the port.
 * All zero: the node is not mirrored. By the port's ifindex.
 */
struct leg {
	__u32 router;	     /* 0: none; of a packet program's node, its number (node.h) */
	__u32 mtu;	     /* of the interface, as `ip link` has it; there, the interface's number */
	__u8 mac[ETH_ALEN];  /* of the interface, as it is now */
	__u8 flags;	     /* enum leg_flags */
	__u8 kind;	     /* enum leg_kind */
};

/* Which code of the walk stands for the leg's node (walk.h). */
enum leg_kind {
	LEG_ROUTER = 0, /* an IP router, by the mirror of its kernel */
	LEG_PROGRAM,	/* a packet program (program.h); package node writes these legs, and package fib all others */
};

enum leg_flags {
	LEG_UP = 1,	   /* administratively up, with carrier */
	LEG_IPV4 = 2,	   /* forwards IPv4 that arrives here (net.ipv4.conf.*.forwarding, rp_filter, ...) */
	LEG_IPV6 = 4,
	LEG_LABEL_RULES = 8, /* the router has label rules (label_rule.h) */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct leg);
} legs SEC(".maps");

/* A router: where its tries begin. By router id; 0 is no router's. */
struct router {
	__u32 root4; /* node of the first byte; 0: no IPv4 on the fast path, all its frames go to its kernel */
	__u32 root6;
	__u32 slice; /* whose: the scope of addresses in map sources */
	__u32 space; /* of its labels (mpls.h); 0: it switches none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ROUTERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct router);
} routers SEC(".maps");

/*
 * An entry of a node: two bits of type, eight bits of prefix length (for user space; programs do not look at it), 22
 * bits of index. All zero is the leaf of next hop 0: no route.
 */
#define ENTRY_TYPE(e) ((e) >> 30)
#define ENTRY_RECORD(e) ((e) >> 22 & 0xff)
#define ENTRY_INDEX(e) ((e) & 0x3fffff)

enum entry_type {
	ENTRY_LEAF = 0,	 /* index of a next hop: the answer */
	ENTRY_NODE = 1,	 /* index of the node for the next byte */
	/* Index of a node whose leaves are chosen by the flow's hash: ECMP, each next hop as often as it weighs. */
	ENTRY_GROUP = 2,
	/* Index of a node of records; the record's number stands where others have the prefix length. */
	ENTRY_PATH = 3,
};

/*
 * Destinations that begin with the first `length` bits of the key go on with `match`: a node that looks at the byte
 * after these bits (then the length is a multiple of eight), or an answer. All others end with `miss`, an answer. Of
 * a record that programs can find, only match and miss change.
 */
struct path {
	__u64 high; /* the key, as numbers of the host: IPv4 in the upper half of this one */
	__u64 low;
	__u32 length;
	__u32 match; /* entries */
	__u32 miss;
	__u32 pad;
};

#define NODE_PATHS 32

struct node {
	union {
		__u32 entry[NODE_ENTRIES];
		struct path path[NODE_PATHS];
	};
};

/* Nodes of all routers, in chunks that are made when they are needed. Node n is in chunk n / CHUNK_NODES. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CHUNKS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, CHUNK_NODES);
		__uint(map_flags, BPF_F_MMAPABLE);
		__type(key, __u32);
		/* Not __type: clang leaves the struct out of the BTF of an inner map. */
		__uint(value_size, sizeof(struct node));
	});
} nodes SEC(".maps");

/* How a router sends to a next hop. NONE, and values from UNRESOLVED on, are reasons to punt. */
enum nexthop_kind {
	NEXTHOP_NONE = 0,   /* no route */
	NEXTHOP_GATEWAY,    /* by the port, to the MAC address */
	/*
	 * The same, but the kernel is to see one frame, so that it asks whether the neighbour is still there (RFC
	 * 4861, 7.3.3).
	 */
	NEXTHOP_STALE,
	NEXTHOP_LINK,	    /* by the port, to the neighbour that has the destination's address: map neighbours */
	NEXTHOP_UNRESOLVED, /* no MAC address yet, or the interface is down */
	NEXTHOP_LOCAL,	    /* the router itself: its addresses, broadcast, multicast */
	NEXTHOP_REJECT,	    /* blackhole, unreachable, prohibit */
	NEXTHOP_OTHER,	    /* a route of a kind that is not mirrored (encap, ...) */
};

/* What changes while a next hop is in use is one word, so that it changes at once. */
union adjacency {
	struct {
		__u8 mac[ETH_ALEN];
		__u8 kind; /* enum nexthop_kind */
		__u8 pad;
	};
	__u64 word;
};

struct nexthop {
	union adjacency to;
	__u32 port; /* ifindex of the router's port that it leaves by */
	__u32 ftn;  /* number of the NHLFE whose labels and way frames get instead (impose.h); 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_NEXTHOPS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct nexthop);
} nexthops SEC(".maps");

/* Neighbours on a router's links, by port and address (IPv4-mapped for IPv4): kinds GATEWAY and STALE. */
struct neighbour {
	__u32 port;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct neighbour);
	__type(value, union adjacency);
} neighbours SEC(".maps");

/*
 * Shortcuts to IPv4 neighbours, which save a lookup in a hash: each has one place, which port and address give, and
 * is there unless another came first.
 */
#define MAX_SHORTCUTS 65536 /* fib.maxShortcuts */

struct shortcut {
	union adjacency to;
	union {
		struct {
			__u32 port;
			__be32 address;
		};
		__u64 neighbour; /* both; 0: none */
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SHORTCUTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct shortcut);
} shortcuts SEC(".maps");

/*
 * Whose IPv4 address is it? A router drops frames that claim to come from itself (RFC 1812, 5.3.8;
 * __fib_validate_source() in the kernel). By slice and address, in network byte order: the router, or MANY if several
 * routers of the slice have it.
 */
struct source {
	__u32 slice;
	__be32 address;
};

#define MANY 0xffffffff

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct source);
	__type(value, __u32);
} sources SEC(".maps");

/*
 * The possible sources. Most frames come from no router's address, and need not be looked for in map sources, which is
 * a hash: a bit is set for addresses that end like one there. (The name of the map is older: it is pinned.)
 */
#define POSSIBLE_SOURCES (1 << 19) /* fib.possibleBits */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POSSIBLE_SOURCES / 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} suspects SEC(".maps");

/*
 * The mirror's lease: until when, by bpf_ktime_get_coarse_ns(), the agent keeps the mirror as the kernels are.
 * Without an agent it becomes wrong in more and more places. After the lease every frame goes to the kernels, until
 * an agent has read everything again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

static __always_inline const struct leg *find_leg(__u32 port)
{
	const struct leg *l = bpf_map_lookup_elem(&legs, &port);

	return l && l->router ? l : NULL;
}

static __always_inline const struct node *find_node(__u32 node)
{
	__u32 chunk = node / CHUNK_NODES, within = node % CHUNK_NODES;
	void *nodes_of;

	nodes_of = bpf_map_lookup_elem(&nodes, &chunk);
	return nodes_of ? bpf_map_lookup_elem(nodes_of, &within) : NULL;
}

static __always_inline __u32 node_entry(__u32 node, __u8 byte)
{
	const struct node *n = find_node(node);

	return n ? n->entry[byte] : 0;
}

/* A destination, as numbers of the host: IPv4 in the upper half of high. */
struct destination {
	__u64 high;
	__u64 low;
};

/*
 * Here and in follow(), bits of a number are tested in place of its range: the verifier would go through the rest of
 * the lookup once for each range that it has found out.
 */
static __always_inline __u8 byte_at(const struct destination *d, __u32 bit)
{
	return (bit & 64 ? d->low : d->high) >> (56 - (bit & 63));
}

/* What a path says. Sets bit to the one after those that it looked at. */
static __always_inline __u32 follow(__u32 entry, const struct destination *d, __u32 *bit)
{
	const struct node *n = find_node(ENTRY_INDEX(entry));
	const struct path *p;
	__u64 differ;
	__u32 length;

	if (!n)
		return 0;
	p = &n->path[ENTRY_RECORD(entry) % NODE_PATHS];
	length = p->length;
	differ = d->high ^ p->high;
	if (!((length - 1) & 64)) /* up to 64 */
		differ >>= (64 - length) & 63;
	else
		differ |= (d->low ^ p->low) >> ((128 - length) & 63);
	*bit = length;
	return differ ? p->miss : p->match;
}

/* The longest prefix's answer for a destination of so many bytes: a leaf, or a group. bit is the first one: 0. */
static __always_inline __u32 find_entry(__u32 root, const __u8 *destination, int bytes, __u32 bit)
{
	struct destination d = {};
	__u32 entry = ENTRY_NODE << 30 | root;

	if (bytes == 4) {
		__be32 a;

		__builtin_memcpy(&a, destination, sizeof(a));
		d.high = (__u64)bpf_ntohl(a) << 32;
	} else {
		__be64 a[2];

		__builtin_memcpy(a, destination, sizeof(a));
		d.high = bpf_be64_to_cpu(a[0]);
		d.low = bpf_be64_to_cpu(a[1]);
	}
	for (int i = 0; i < bytes; i++) {
		entry = node_entry(ENTRY_INDEX(entry), byte_at(&d, bit));
		bit += 8;
		if (ENTRY_TYPE(entry) == ENTRY_PATH)
			entry = follow(entry, &d, &bit);
		if (ENTRY_TYPE(entry) != ENTRY_NODE)
			break;
	}
	return entry;
}
