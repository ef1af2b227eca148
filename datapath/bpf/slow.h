/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The slow path of a node with a packet program: a tap device, whose file descriptor a process in the node's sliver
 * has (pergola/slow.h). What is punted leaves by the tap; what the process writes comes in there (slow_inject in
 * port.c) and goes to the node's program, which knows the node's ports.
 *
 * The tap's index is made of the node's number: programs need no table, and a tap that is gone is never taken for
 * another device. The kernel counts up to such indexes only after 2^30 devices.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../program/include/pergola/slow.h"

#define FIRST_TAP 0x40000000 /* node.FirstTap: index of the tap of node 0, which is none */

/* Where frames go that a node's program punts. */
enum slow_path {
	SLOW_NONE = 0,	/* nowhere: they are dropped */
	SLOW_INTERFACE, /* to the interface by which they came, as they came */
	SLOW_SOCKET,	/* to the tap */
};

/* Of a tap: the node's number; 0: the device is none. */
static __always_inline __u32 node_of_tap(__u32 ifindex)
{
	return ifindex > FIRST_TAP && ifindex < FIRST_TAP + MAX_NODES ? ifindex - FIRST_TAP : 0;
}
