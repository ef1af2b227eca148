/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Filters: the ternary tables of packet programs, each as if it had a TCAM of its own. User space (package filter)
 * writes, programs read.
 *
 *	table -> masks in their order -> bucket -> filters with this mask and key, in order of rank
 *
 * This is tuple space search (Srinivasan, Suri, Varghese, SIGCOMM 1999): filters with the same mask are in a hash table
 * by the bits that the mask leaves of the key, and a lookup goes from mask to mask. The masks stand in the order of the
 * highest priority that any filter has with them, and the lookup ends where no mask that is left can have a better one
 * (Open vSwitch's classifier does so, too). All tables share one hash table, as large as the number of filters on the
 * host asks for. One word has marks of all filters of a bucket: it tells for most masks that nothing has them and the
 * key.
 *
 * Whatever changes in a table changes at once: the table has a version, a filter says in which versions it is there,
 * and a lookup is one in the version that it found at its beginning. A batch of changes, or a table that takes the
 * place of another one, is one store of a version. What no lookup can find any more is used again after the kernel has
 * waited for the programs that run. docs/decisions/013-filters.md has the measurements.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "filter_maps.h"

/* What a lookup found. */
struct filter_match {
	struct filter_result result;
	__u64 version; /* of the table, in which it was looked for */
	__u64 rank;    /* priority in the upper half; 0: nothing was found */
	__u64 after;   /* what is looked for is of a lower rank */
	__u32 filter;  /* number; 0: nothing was found */

	/* What is left to do: the first of these that is not 0. */
	__u32 chain;  /* filter, whose key is the one, and which may not be wanted */
	__u32 probes; /* buckets that may have the chain for the hash, and the mask in the place `probe` */
	__u32 masks;

	__u32 words; /* of the table's keys */
	__u32 place; /* of the next mask */
	__u32 probe;
	__u64 hash;
};

#define filter_read(x) (*(const volatile typeof(x) *)&(x))

/*
 * What is read by way of the pointer is read after `value`, also on processors that read out of order: the address
 * depends on it. The verifier sees that 0 is added.
 */
#define filter_after(pointer, value)                           \
	({                                                     \
		__u64 __zero = (value);                        \
		asm volatile("%0 &= 0" : "+r"(__zero));        \
		(typeof(pointer))((char *)(pointer) + __zero); \
	})

static __always_inline const struct filter_index *find_filter_index(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&filter_index, &zero);
}

static __always_inline const struct filter_buckets *find_filter_buckets(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&filter_buckets, &zero);
}

static __always_inline const struct filter_chunk *find_filter_chunk(__u32 n)
{
	__u32 chunk = n / FILTER_CHUNK, zero = 0;
	void *filters_of = bpf_map_lookup_elem(&filter_chunks, &chunk);

	return filters_of ? bpf_map_lookup_elem(filters_of, &zero) : NULL;
}

static __always_inline const struct filter *filter_of(const struct filter_chunk *c, __u32 n, int words)
{
	return (const void *)&c->filter[n % FILTER_CHUNK * (FILTER_HEAD + words)];
}

/*
 * NH of UMAC (RFC 4418, 5.2.2), whose collisions nobody who does not know the secret can bring about: 2^-32 for any
 * two keys.
 */
static __always_inline __u64 hash_filter(const struct filter_index *index, const struct filter_mask *mask,
					 const struct filter_key *key, int words)
{
	__u64 h = mask->seed;

#pragma unroll
	for (int i = 0; i < words; i++) {
		__u64 x = key->word[i] & mask->word[i], secret = index->secret[i];

		h += (__u64)((__u32)x + (__u32)secret) * ((__u32)(x >> 32) + (__u32)(secret >> 32));
	}
	h *= 0xff51afd7ed558ccd;
	return h ^ h >> 32;
}

static __always_inline const struct filter_bucket *find_filter_bucket(const struct filter_index *index,
									 const struct filter_buckets *buckets,
									 __u64 hash, __u32 probe)
{
	__u32 n = filter_read(index->buckets);

	return &buckets->bucket[((((__u32)hash + probe) & (n - 1)) | n) % (2 * FILTER_BUCKETS)];
}

/* The lanes that have the hash's mark, by their highest bit. Above the first one, there may be wrong ones. */
static __always_inline __u64 filter_marked(__u64 marks, __u64 hash)
{
	__u64 differ = marks ^ (hash >> 54 | 1 << (FILTER_LANE - 1)) * FILTER_LANES;

	return (differ - FILTER_LANES) & ~differ & FILTER_LANES << (FILTER_LANE - 1);
}

/* The number of the first lane of those. Six numbers stand in one word, so that the product's first bits are one. */
static __always_inline __u32 filter_lane(__u64 marked)
{
	return ((marked & -marked) >> (FILTER_LANE - 1)) *
		       (1ull << 51 | 2ull << 41 | 3ull << 31 | 4ull << 21 | 5ull << 11) >> 61;
}

/* The filter of a slot; 0: it has another mask. */
static __always_inline __u32 filter_in(__u32 slot, const struct filter_mask *mask)
{
	return slot >> FILTER_BITS == mask->number ? slot & ((1 << FILTER_BITS) - 1) : 0;
}

static __always_inline bool has_filter_key(const struct filter *f, const struct filter_mask *mask,
					   const struct filter_key *key, int words)
{
	__u64 differ = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		differ |= (key->word[i] & mask->word[i]) ^ f->key[i];
	return !differ;
}

/* Is the filter there in this version, and of a lower rank than those that were found before? */
static __always_inline bool is_wanted(const struct filter_chunk *c, const struct filter *f, __u32 n,
				      const struct filter_match *m)
{
	const struct filter_life *l = &c->life[n % FILTER_CHUNK];

	if (filter_read(f->passing) && (m->version < l->born || m->version >= filter_read(l->died)))
		return false;
	return f->rank < m->after;
}

/* Takes the filter, which is wanted, if it is the best one until now. */
static __always_inline void prefer_filter(struct filter_match *m, const struct filter_chunk *c, const struct filter *f,
					  __u32 n)
{
	if (f->rank <= m->rank)
		return;
	m->rank = f->rank;
	m->filter = n;
	m->result = c->result[n % FILTER_CHUNK];
}

/* The next filter of the chain: the first one that is wanted is the best of those. */
__noinline int filter_chain(struct filter_match *m)
{
	const struct filter_chunk *c;
	const struct filter *f;

	if (!m)
		return 0;
	c = find_filter_chunk(m->chain);
	if (!c)
		return m->chain = 0;
	if (m->words == 2)
		f = filter_of(c, m->chain, 2);
	else
		f = m->words == 4 ? filter_of(c, m->chain, 4) : filter_of(c, m->chain, 8);
	if (is_wanted(c, f, m->chain, m)) {
		prefer_filter(m, c, f, m->chain);
		m->chain = 0;
	} else {
		m->chain = filter_read(f->next);
	}
	return 0;
}

/* Looks in the next bucket for the chain that scan_masks() did not find. */
__noinline int filter_probe(const struct filter_key *key, struct filter_match *m)
{
	const struct filter_index *index = find_filter_index();
	const struct filter_buckets *buckets = find_filter_buckets();
	const struct filter_bucket *b;
	const struct filter_mask *mask;

	if (!key || !m || !index || !buckets)
		return 0;
	index = filter_after(index, m->version);
	buckets = filter_after(buckets, m->version);
	mask = (const void *)&index->order[m->probe % FILTER_ORDER];
	b = find_filter_bucket(index, buckets, m->hash, FILTER_PROBES - m->probes);
	for (int i = 0; i < FILTER_SLOTS; i++) {
		__u32 n = filter_in(filter_read(b->slot[i]), mask);
		const struct filter_chunk *c = n ? find_filter_chunk(n) : NULL;
		bool has;

		if (!c)
			continue;
		if (m->words == 2)
			has = has_filter_key(filter_of(c, n, 2), mask, key, 2);
		else if (m->words == 4)
			has = has_filter_key(filter_of(c, n, 4), mask, key, 4);
		else
			has = has_filter_key(filter_of(c, n, 8), mask, key, 8);
		if (has) {
			m->chain = n;
			return m->probes = 0;
		}
	}
	m->probes = filter_read(b->marks) & FILTER_PASSED ? m->probes - 1 : 0;
	return 0;
}

/*
 * Takes the first filter with the hash's mark, which in nearly all cases is what there is. Returns 1 if it is another
 * one, or not wanted: then filter_probe() has to look.
 */
static __always_inline int take_first(const struct filter_key *key, struct filter_match *m,
				      const struct filter_mask *mask, __u32 n, int words)
{
	const struct filter_chunk *c = find_filter_chunk(n);
	const struct filter *f;

	if (!c || !n)
		return 1;
	f = filter_of(c, n, words);
	if (!has_filter_key(f, mask, key, words) || !is_wanted(c, f, n, m))
		return 1;
	prefer_filter(m, c, f, n);
	return 0;
}

#define FILTER_GROUP 8

/* Goes on from mask to mask, until a hash has to be looked for elsewhere. */
static __always_inline void scan_masks(const struct filter_key *key, struct filter_match *m, int words)
{
	const struct filter_index *index = find_filter_index();
	const struct filter_buckets *buckets = find_filter_buckets();
	__u32 place = m->place % FILTER_ORDER, masks = m->masks;
	const struct filter_mask *mask;

	if (!index || !buckets)
		return;
	index = filter_after(index, m->version);
	buckets = filter_after(buckets, m->version);
	mask = (const void *)&index->order[place];
	for (int i = 0; i < FILTER_GROUP; i++) {
		const struct filter_bucket *b;
		__u64 hash, marks, marked;
		__u32 n;

		if (!masks || m->rank > filter_read(mask->bound)) {
			masks = 0;
			break;
		}
		hash = hash_filter(index, mask, key, words);
		b = find_filter_bucket(index, buckets, hash, 0);
		marks = filter_read(b->marks);
		marked = filter_marked(marks, hash);
		masks--;
		if (marked | (marks & FILTER_PASSED)) {
			n = filter_in(filter_read(b->slot[filter_lane(marked)]), mask);
			if (take_first(key, m, mask, n, words)) {
				m->hash = hash;
				m->probe = place;
				m->probes = FILTER_PROBES;
				place += FILTER_MASK_WORDS(words);
				break;
			}
		}
		mask = (const void *)&mask->word[words];
		place += FILTER_MASK_WORDS(words);
	}
	m->place = place;
	m->masks = masks;
}

__noinline int filter_scan(const struct filter_key *key, struct filter_match *m)
{
	if (!key || !m)
		return 0;
	if (m->words == 2)
		scan_masks(key, m, 2);
	else if (m->words == 4)
		scan_masks(key, m, 4);
	else
		scan_masks(key, m, 8);
	return 0;
}

/* What bpf_loop() hands to its callback has to be on the stack. */
struct filter_turn {
	const struct filter_key *key;
	struct filter_match *match;
};

/* One part of what is left to do. Returns 1 where there is nothing. */
static long go_on(__u32 number __attribute__((unused)), struct filter_turn *t)
{
	if (t->match->chain)
		filter_chain(t->match);
	else if (t->match->probes)
		filter_probe(t->key, t->match);
	else if (t->match->masks)
		filter_scan(t->key, t->match);
	else
		return 1;
	return 0;
}

#define FILTER_TURNS (1 << 20) /* more than a lookup can need */

static __always_inline void count_hit(__u32 n)
{
	const struct filter_index *index = find_filter_index();
	__u32 stripe, within = n % FILTER_CHUNK;
	void *hits_of;
	__u64 *hits;

	if (!index)
		return;
	stripe = (bpf_get_smp_processor_id() & (index->stripes - 1)) * FILTER_CHUNKS + n / FILTER_CHUNK;
	hits_of = bpf_map_lookup_elem(&filter_hits, &stripe);
	hits = hits_of ? bpf_map_lookup_elem(hits_of, &within) : NULL;
	if (!hits)
		return;
	if (index->shared)
		__sync_fetch_and_add(hits, 1);
	else
		*hits += 1;
}

/*
 * The filter of the highest rank that the key matches, of those behind the one in m, in the version in which that was
 * found; all, where m->filter is 0. So a program finds all matches in their order that begins with 0 and calls this
 * until it returns 0, in one run. What is found has been hit, and counts. What programs can find does not change
 * before they end; it may change after.
 */
__noinline int filter_find(__u32 table, const struct filter_key *key, struct filter_match *m)
{
	const struct filter_index *index = find_filter_index();
	struct filter_turn turn = {.key = key, .match = m};
	const struct filter_table *t;
	__u64 order;

	if (!key || !m || !index || table >= FILTER_TABLES)
		return 0;
	t = &index->table[table];
	m->after = m->rank;
	m->rank = 0;
	if (!m->filter) {
		m->after = ~0ull;
		m->version = filter_read(t->version);
	}
	m->filter = 0;
	t = filter_after(t, m->version);
	order = filter_read(t->order);
	m->words = t->words;
	m->place = order;
	m->masks = order >> 32;
	m->chain = 0;
	m->probes = 0;
	filter_scan(key, m);
	if (m->chain | m->probes | m->masks)
		bpf_loop(FILTER_TURNS, go_on, &turn, 0);
	if (!m->filter)
		return 0;
	count_hit(m->filter);
	return 1;
}

/* The filter that wins for the key. Returns 0 if there is none. */
static __always_inline int filter_lookup(__u32 table, const struct filter_key *key, struct filter_match *m)
{
	m->filter = 0;
	return filter_find(table, key, m);
}
