/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What tables of filters are made of (filter.h has what they are): maps that user space (package filter) writes, and
 * programs read.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define FILTER_WORDS 8		/* of 64 bits, of a key */
#define FILTER_TABLES 4096	/* filter.MaxTables */
#define FILTER_TABLE_MASKS 256	/* filter.MaxTableMasks */
#define FILTER_ORDER 262144	/* words for the masks of all tables: 2 MiB */
#define FILTER_BUCKETS 65536	/* at most */
#define FILTER_SLOTS 6
#define FILTER_PROBES 64	/* buckets, from a filter's own one on, in which it may be */
#define FILTER_CHUNKS 256	/* of filters: 42 MiB in all */
#define FILTER_CHUNK 1024	/* filters of a chunk: 168 KiB */
#define FILTER_BITS 18		/* of a filter's number */
#define FILTER_STRIPES 16	/* of counters: processors that do not wait for each other to count */

/* Bytes of the key in the order in which they are in the frame; 0 behind the key's end. */
struct filter_key {
	__u64 word[FILTER_WORDS];
};

/* What a filter has for the program: of no meaning here. */
struct filter_result {
	__u64 word[8];
};

/* A table, by number. All zero: there is none. */
struct filter_table {
	__u64 version; /* grows with every change */
	__u64 order;   /* of its masks: first word in the lower half, number of masks in the upper one */
	__u32 words;   /* that a key is hashed by: 2, 4 or 8; those behind its end are 0 */
	__u32 bytes;   /* of a key; programs do not look at it */
	__u64 pad;
};

/* A mask of a table, in its place among the others. As many words follow one another as the table's keys have. */
struct filter_mask {
	__u64 bound; /* no filter with this mask, or one behind it, has a higher rank */
	__u64 seed;
	__u64 number; /* 1 to 8191; no other mask of any table has it */
	__u64 word[FILTER_WORDS];
};

#define FILTER_MASK_WORDS(words) (3 + (words))

struct filter_index {
	__u64 secret[FILTER_WORDS]; /* random: who chooses keys cannot choose buckets */
	__u32 buckets;		    /* how many there are: a power of two */
	__u32 stripes;		    /* of counters: a power of two */
	__u32 shared;		    /* several processors count in a stripe */
	__u32 pad[13];
	struct filter_table table[FILTER_TABLES];
	__u64 order[FILTER_ORDER];
	__u64 end[FILTER_TABLE_MASKS * FILTER_MASK_WORDS(FILTER_WORDS)]; /* no order begins here */
};

/* Arrays of one entry, because a program may use 64 maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct filter_index);
} filter_index SEC(".maps");

/*
 * Buckets. Where there are n of them, they are numbers n to 2n-1 here: so a larger table, or a smaller one, is made
 * beside the one in use. Marks of the slots are lanes of FILTER_LANE bits in one word, 0 for a free slot. A slot has
 * the number of the first filter of a chain, and the number of its mask above. A filter whose own bucket is full is in
 * one of the next; then the last bit of the marks is set.
 */
#define FILTER_LANE 10
#define FILTER_LANES (1ull | 1ull << 10 | 1ull << 20 | 1ull << 30 | 1ull << 40 | 1ull << 50)
#define FILTER_PASSED (1ull << 63)

struct filter_bucket {
	__u32 slot[FILTER_SLOTS];
	__u64 marks;
};

struct filter_buckets {
	struct filter_bucket bucket[2 * FILTER_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct filter_buckets);
} filter_buckets SEC(".maps");

/*
 * A filter, as far as a lookup compares it. Its rank is its priority, and below that a number that is the higher, the
 * earlier the filter was inserted: no two of a table have the same, and the highest one wins. `next` and `passing`
 * change while programs may find it.
 */
struct filter {
	__u64 rank;    /* not 0 */
	__u32 next;    /* with the same mask and key, and of the next lower rank; 0: none */
	__u32 passing; /* 0: there in all versions that any lookup may be in; else its life says in which */
	__u64 key[];   /* what the mask leaves of it; as many words as are hashed */
};

#define FILTER_HEAD 2 /* words of a filter before its key */

struct filter_life {
	__u64 born; /* the first version in which the filter is there */
	__u64 died; /* the first one in which it is not; versions are less than 2^63 */
};

/*
 * Filters whose keys have the same number of words. What a lookup compares stands close together: 100,000 filters with
 * short keys take 3 MB, which a cache may hold.
 */
struct filter_chunk {
	__u64 filter[FILTER_CHUNK * (FILTER_HEAD + FILTER_WORDS)];
	struct filter_result result[FILTER_CHUNK];
	struct filter_life life[FILTER_CHUNK];
	__u64 hits[FILTER_CHUNK]; /* of filters whose place it took; programs do not look at it */
};

/* Filters of all tables, in chunks that are made when they are needed. Filter n is in chunk n / FILTER_CHUNK. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FILTER_CHUNKS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__uint(map_flags, BPF_F_MMAPABLE);
		__type(key, __u32);
		/* Not __type: clang leaves the struct out of the BTF of an inner map. */
		__uint(value_size, sizeof(struct filter_chunk));
	});
} filter_chunks SEC(".maps");

/* How often each filter was hit. Stripe s of chunk c is number s * FILTER_CHUNKS + c. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FILTER_STRIPES * FILTER_CHUNKS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, FILTER_CHUNK);
		__uint(map_flags, BPF_F_MMAPABLE);
		__type(key, __u32);
		__uint(value_size, sizeof(__u64));
	});
} filter_hits SEC(".maps");
