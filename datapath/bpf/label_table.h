/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What routers do with labels (RFC 3031, 3.10 to 3.12). User space (datapath/mpls.go) writes, mpls.h and impose.h read.
 *
 *	(label space, label) -> NHLFE: labels off, labels on, next hop	the incoming label map
 *	(label space, FTN) -> NHLFE					of frames that get their first labels
 *
 * The table is a hash. Most entries are in a second place, too, where a lookup costs a third of that.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

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
#define MAX_LABEL_CELLS 16384	  /* datapath.maxLabelCells */
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LABEL_CELLS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct nhlfe);
} label_cells SEC(".maps");

/* What every router does with the labels that say nothing but what is behind them. */
static const struct nhlfe explicit_null = {.operation = LABEL_POP, .flags = LABEL_UNIFORM};

static __always_inline const struct nhlfe *find_label_shortcut(__u32 space, __u32 label)
{
	__u64 number = (__u64)space << LABEL_BITS | label, word;
	__u32 place = number * 0x9e3779b97f4a7c15 >> 49, cell;
	const __u64 *at = bpf_map_lookup_elem(&label_shortcuts, &place);

	if (!at)
		return NULL;
	word = *(const volatile __u64 *)at;
	if (word >> CELL_BITS != number)
		return NULL;
	cell = word & (MAX_LABEL_CELLS - 1);
	return bpf_map_lookup_elem(&label_cells, &cell);
}

/* label: or an FTN, with that bit. NULL: the space does not have it. */
static __always_inline const struct nhlfe *find_nhlfe(__u32 space, __u32 label)
{
	const struct nhlfe *n = find_label_shortcut(space, label);
	struct label_key key = {.space = space, .label = label};

	return n ?: bpf_map_lookup_elem(&labels, &key);
}
