/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a node's programs know of their node, and what they count. Each node has maps of its own.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "fib.h"
#include "frame.h"
#include "node.h"
#include "program.h"
#include "slow.h"

struct settings {
	__u32 number;	  /* of its legs */
	enum slow_path slow_path;
	__u64 interfaces; /* that are there: bit i is interface i, from 1 to 63 */
	__u32 table;	  /* the first of its tables of filters, */
	__u32 tables;	  /* and how many it has */
	__u32 slice;	  /* whose processor time it takes (fastpath.h) */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} node_settings SEC(".maps");

/* Its ports: that of interface i + 1 at i; 0: not there. The loader makes room for as many as there are. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} node_ports SEC(".maps");

/* What became of the frames that came to the node. One copy per CPU. */
struct node_traffic {
	__u64 frames, bytes; /* that came */
	__u64 verdicts[8];   /* by enum pergola_verdict; frames with a fault are not in it */
	__u64 faults[PROGRAM_FAULTS];
	__u64 copies;	     /* that floods made, */
	__u64 lost;	     /* and that the kernel had no room for */
	__u64 no_queue;	     /* frames for a queue that the interface has not: they were put into number 0 */
	__u64 handed;	     /* to the slow path's tap device, */
	__u64 written;	     /* and that came from there and were in order */
	__u64 offered;	     /* how often a frame asked for processor time (sample.h) */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct node_traffic);
} node_counts SEC(".maps");

static __always_inline const struct settings *find_node_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&node_settings, &zero);
}

static __always_inline struct node_traffic *find_node_counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&node_counts, &zero);
}

static __always_inline int drop_frame(struct node_traffic *c, enum program_fault why)
{
	if (why < PROGRAM_FAULTS)
		c->faults[why]++;
	return TC_ACT_SHOT;
}

/* What the node's kernel gets is counted where it is handed to it. What the slow path wrote has come to no port. */
static __always_inline void count_arrival(const struct frame *f, const struct settings *n,
					  const struct program_outcome *o, __u32 bytes)
{
	bool to_kernel = o->verdict == PERGOLA_PUNT && o->fault == PROGRAM_OK && n->slow_path == SLOW_INTERFACE;

	if (f->at && !to_kernel)
		count_walked_in(f->at, bytes);
}

/* What came in a UDP packet did not come by an interface that the node has. */
static __always_inline enum slow_path slow_path_of(const struct settings *n, const struct frame *f)
{
	return n->slow_path == SLOW_INTERFACE && !f->at ? SLOW_NONE : n->slow_path;
}

static __always_inline void count_verdict(struct node_traffic *c, enum pergola_verdict verdict)
{
	c->verdicts[verdict]++;
}

/*
 * The port of an interface; 0: it is not there. The leg decides: a number that came to mean another node's port has no
 * leg of this one.
 */
static __always_inline __u32 port_of(const struct settings *n, __u32 interface)
{
	__u32 at = interface - 1, port;
	const volatile __u32 *p = bpf_map_lookup_elem(&node_ports, &at);
	const struct leg *l;

	if (!p)
		return 0;
	port = *p;
	l = find_leg(port);
	return l && l->kind == LEG_PROGRAM && l->router == n->number ? port : 0;
}

/* The queue that the program chose, for a frame that goes out by the port, if that has it; else 0. */
static __always_inline __u32 queue_of(struct node_traffic *c, __u32 port, __u32 queue)
{
	const struct port *p = queue ? find_port(port) : NULL;

	if (queue && (!p || queue >= p->queues)) {
		c->no_queue++;
		queue = 0;
	}
	return queue;
}
