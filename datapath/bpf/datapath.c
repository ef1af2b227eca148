// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * All programs, which share all maps: one object.
 */
#include "fastpath.h" /* this one and the next for their maps: packet programs have theirs of these pins */
#include "filter.h"
#include "linecard.c"
#include "notes.h"
#include "port.c"
#include "tunnelcard.c"
#include "underlay.c"

char _license[] SEC("license") = "Dual BSD/GPL";
