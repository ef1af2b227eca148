/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What routers do with labels (RFC 3031, 3.10 to 3.12). User space (datapath/mpls.go) writes, mpls.h and impose.h read.
 *
 *	(label space, label) -> NHLFE: labels off, labels on, next hop	the incoming label map
 *	(label space, FTN) -> NHLFE					of frames that get their first labels
 *
 * The table is a hash. Most entries are in a second place, too, where a lookup costs a third of that, and where they
 * are looked at without a copy.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "label_entry.h"
#include "needs.h"

#define MAX_PUSHES 3 /* of one NHLFE */
#define MAX_NHLFES 262144

/* Numbers that no label has are those of NHLFEs for frames that get their first labels: 1 << 20, plus nexthop.ftn. */
#define FTN (1u << 20)

struct label_key {
	__u32 space; /* of the router: router.space */
	__u32 label;
};

enum label_operation {
	LABEL_NONE = 0,
	LABEL_POP,    /* off, and on at this router with what is below: another label, or IP */
	LABEL_SWITCH, /* off, `pushes` on, and to the next hop; without pushes, this is the penultimate hop */
};

enum label_flags {
	LABEL_UNIFORM = 1, /* TTL is handed on from header to header (RFC 3443, 2.1); else the model is the pipe */
	LABEL_KEEP_TC = 2, /* labels get the traffic class of what they replace or stand on: of IP, the precedence */
	LABEL_RESERVED = 4, /* the LSP has a reservation: reserve.h. An FTN's is metered */
	LABEL_BYPASS = 8,   /* by a bypass, of a link that has failed: nothing was admitted there */
};

/* Next hop label forwarding entry. */
struct nhlfe {
	__u8 mac[ETH_ALEN]; /* of the next hop: begins a word (readdress()) */
	__u8 operation;	    /* enum label_operation */
	__u8 flags;	    /* enum label_flags */
	__u32 port;	    /* by which it leaves */
	__u32 in;	    /* by which it must come; 0: by any of the router's */
	__u8 ttl;	    /* of labels that are pushed, in the pipe model */
	__u8 pushes;
	__u16 pad;
	__u32 push[MAX_PUSHES]; /* label << 12 | traffic class << 9, the lowest first */
} __attribute__((aligned(8)));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NHLFES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct label_key);
	__type(value, struct nhlfe);
} labels SEC(".maps");

/*
 * Shortcuts, which save a lookup in the hash. Each label has one place here, which space and label give, and is there
 * unless another came first. The word there names the label, and a cell with a copy of the NHLFE; a cell that programs
 * may have found does not change, so they see the old entry or the new one.
 */
#define MAX_LABEL_SHORTCUTS 32768 /* datapath.maxLabelShortcuts */
#define MAX_LABEL_CELLS 16384	  /* datapath.maxLabelCells; of shortcuts */
#define CELL_BITS 14
#define LABEL_BITS 21 /* with FTN */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LABEL_SHORTCUTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64); /* space << 35 | label << 14 | cell: spaces of more than 29 bits have none. 0: none */
} label_shortcuts SEC(".maps");

/* Behind the cells of shortcuts each CPU has one of its own, for what is in the hash alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LABEL_CELLS + 1); /* the loader knows how many CPUs there may be */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct nhlfe);
} label_cells SEC(".maps");

#define CELLS_OF_CPU 2 /* datapath.cellsOfCPU; a cache line, and the first one is used */
#define NO_CELL (~0u) /* label_cells does not have it */

/* What every router does with the labels that say nothing but what is behind them. */
static const struct nhlfe explicit_null = {.operation = LABEL_POP, .flags = LABEL_UNIFORM};

static __always_inline bool is_explicit_null(__u32 label)
{
	return label == LABEL_IPV4_NULL || label == LABEL_IPV6_NULL;
}

/*
 * Copies what has no shortcut into this CPU's own cell. What has been found in a hash may be written anew while a
 * program looks at it: the kernel gives the memory of an entry to the next one at once (since Linux 6.1). Returns the
 * cell, or NO_CELL.
 */
__noinline __u32 fill_cell(__u32 space, __u32 label)
{
	__u32 cell = MAX_LABEL_CELLS + CELLS_OF_CPU * bpf_get_smp_processor_id();
	struct label_key key = {.space = space, .label = label};
	struct nhlfe *copy = bpf_map_lookup_elem(&label_cells, &cell);
	const struct nhlfe *n;

	if (!with_mpls || !copy)
		return NO_CELL;
	n = is_explicit_null(label) ? &explicit_null : bpf_map_lookup_elem(&labels, &key);
	if (!n)
		return NO_CELL;
	*copy = *n;
	return cell;
}

/*
 * What the space has for a label, or for an FTN, with that bit. It stays what it is until the next one is looked for.
 * NULL: there is nothing.
 */
static __always_inline const struct nhlfe *find_nhlfe(__u32 space, __u32 label)
{
	__u64 number = (__u64)space << LABEL_BITS | label, word = 0;
	__u32 place = number * 0x9e3779b97f4a7c15 >> 49, cell;
	const __u64 *at = bpf_map_lookup_elem(&label_shortcuts, &place);

	if (at)
		word = *(const volatile __u64 *)at;
	if (word >> CELL_BITS == number)
		cell = word & (MAX_LABEL_CELLS - 1);
	else
		cell = fill_cell(space, label);
	return bpf_map_lookup_elem(&label_cells, &cell);
}
