/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * An entry of a label stack (RFC 3032, 2.1), as a number of the host.
 */
#pragma once

#ifndef ETH_P_MPLS_UC
#define ETH_P_MPLS_UC 0x8847
#endif

#define ENTRY_LABEL(e) ((e) >> 12)
#define ENTRY_TC 0xe00 /* the traffic class (RFC 5462) */
#define CLASS_OF(e) ((e) >> 9 & 7)
#define ENTRY_BOTTOM 0x100
#define ENTRY_TTL(e) ((e) & 0xff)
#define NO_ENTRY (1ull << 32)

enum special_label { /* RFC 3032, 2.1 */
	LABEL_IPV4_NULL = 0,
	LABEL_ROUTER_ALERT = 1,
	LABEL_IPV6_NULL = 2,
	FIRST_LABEL = 16,
};
