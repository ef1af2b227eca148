/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Nodes that have packet programs: what the platform's programs (skb.h, port.c) and those of nodes (node.c) share.
 *
 *	port_ingress -> walk -> leg of a program's node -> leave() == tail call ==> node_tc
 *	                             ^                                                 |
 *	                             +---------- walk_on() <====== tail call ==========+
 *
 * The record of the frame (frame.h) is common to all of them. A frame can be called on 33 times: at the limit it is
 * put into the port by which it would go on, as if the node had sent it, and all begins anew. Calls of nodes have odd
 * numbers, so the last one is that of a node. What a slow path wrote has come by one call more, of slow_inject: it
 * begins anew at once.
 *
 * In XDP it is the same, by maps of its own, until the frame has to go somewhere that XDP does not lead to:
 *
 *	line card -> walk -> leg of a program's node -> call_node() == tail call ==> node_xdp == handover.h ==> tc
 *	                           ^                                                    |
 *	                           +------- walk_on_xdp() <====== tail call ============+
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAX_NODES 4096 /* node.MaxNodes */

/* Programs of nodes, by the number that their legs have. User space (package node) writes. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_NODES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} node_programs SEC(".maps");

/* walk_on at 0, and slow_inject: so they can be replaced, and the programs of nodes stay. */
#define SLOW_INJECT 1

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} walks SEC(".maps");

/* The same for XDP: all programs in such a map are of one kind. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_NODES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} node_programs_xdp SEC(".maps");

/* walk_on_xdp, at 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} walks_xdp SEC(".maps");

/*
 * How many packet programs have met a frame, and what it was copied from, is kept in skb->mark, while the frame is in
 * the substrate: what a node sends has none, because the kernel clears it between namespaces. So no frame lives for
 * ever in a loop of nodes whose protocol has no hop limit of its own. A mark that somebody else made says nothing. In
 * XDP it is in the record of the frame.
 */
#define MARK_OURS 0x70670000 /* "pg" */
#define MARK_ROUTERS 0x8000  /* routers have sent it, and not the node whose port it enters (sent.h) */
#define MARK_COUNT 0x7fff
#define MAX_MET 255 /* as many nodes as IP's hop limit allows */

static __always_inline __u32 programs_met(const struct __sk_buff *skb)
{
	__u32 mark = skb->mark;

	return (mark & ~(MARK_ROUTERS | MARK_COUNT)) == MARK_OURS ? mark & MARK_COUNT : 0;
}

static __always_inline bool by_routers(const struct __sk_buff *skb)
{
	return (skb->mark & ~MARK_COUNT) == (MARK_OURS | MARK_ROUTERS);
}
