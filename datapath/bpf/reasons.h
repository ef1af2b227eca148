/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a frame did not go on: every drop has one name, here and nowhere else. User space reads the names from this enum's
 * BTF (package datapath, Reasons): REASON_NOT_WIRED is shown as "not wired". Append only: the values are indices of counters
 * in pinned maps. Whoever appends raises ABI in datapath/abi.go.
 */
#pragma once

enum reason {
	CONTINUE = 0, /* no reason: the frame goes on */

	REASON_UNKNOWN_PORT, /* entered at a device that no port record describes */
	REASON_NOT_WIRED,    /* the port is joined to nothing */
	REASON_PEER_GONE,    /* the port it is joined to does not exist any more */
	REASON_TOO_BIG,      /* longer than the receiving interface's MTU */
	REASON_NO_MEMORY,    /* to change the header of a frame whose bytes others hold too */

	REASONS, /* their number */
};

/* Puts the enum into the object's BTF; nothing uses it. */
enum reason *reason_names __attribute__((unused));
