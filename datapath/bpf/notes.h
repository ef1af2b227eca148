/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Notes: what user space has to find again about a host's network, and the kernel tells nowhere. No program reads them.
 * They are pinned here to outlive the process that wrote them, and to end with the network.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "ports.h"

enum note_kind {
	NOTE_PROCESS = 1, /* by port */
	NOTE_NIC,	  /* by interface of the machine's namespace */
	NOTE_FORWARDING,  /* 0 */
	NOTE_SLOW,	  /* by tap device */
	NOTE_SLOW_HIGH,
	NOTE_THREADED, /* by interface of the machine's namespace */
};

struct note {
	enum note_kind kind;
	__u32 index;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_PORTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct note);
	__type(value, __u32);
} notes SEC(".maps");
