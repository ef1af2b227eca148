// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * node_tc: the packet program of one node, called where a frame has come to the node's leg (node.h).
 *
 * Package node loads a copy for each node, with the slice's code spliced in. What the program is to know of its node is
 * in maps of the copy's own, so a replacement, with other interfaces or another slow path, is one store: that of the
 * program in node_programs. Its verdicts are carried out here as far as that needs nothing but the node's own ports;
 * the frame then goes on with walk_on (port.c).
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "fib.h"
#include "frame.h"
#include "meter.h"
#include "node.h"
#include "program_skb.h"

struct settings {
	__u32 number;	  /* of its legs */
	__u32 slow_path;  /* the node takes frames that its program punts */
	__u64 interfaces; /* that are there: bit i is interface i, from 1 to 63 */
	__u32 table;	  /* the first of its tables of filters, */
	__u32 tables;	  /* and how many it has */
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
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct node_traffic);
} node_counts SEC(".maps");

/*
 * How many copies floods may make: so many a second, and so many at once. A storm, of nodes that flood in a circle,
 * takes no more of the host than that, and ends when the last copy has met as many programs as a frame may (node.h).
 */
#define COPIES_A_SECOND 50000
#define COPIES_AT_ONCE 128 /* of the 1,000 frames that may wait for a CPU (net.core.netdev_max_backlog) */
#define NS_OF_COPY (1000000000 / COPIES_A_SECOND)

/* When the bucket of copies would be full again (meter.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} node_copies SEC(".maps");

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

/*
 * Out by the port, behind which the walk goes on. A frame that has grown enters anew: the kernel still thinks that the
 * network header is where it was, and would shorten the frame in the wrong place.
 */
static __always_inline int send_by(struct __sk_buff *skb, struct frame *f, __u32 port)
{
	f->from = port;
	if (f->returned != RETURNED_GROWN) {
		f->returned = RETURNED_SENT;
		bpf_tail_call(skb, &walks, 0);
	}
	return bpf_redirect(port, BPF_F_INGRESS);
}

/* As it came, to the node. */
static __always_inline int punt_frame(struct __sk_buff *skb, struct frame *f)
{
	f->returned = RETURNED_PUNTED;
	bpf_tail_call(skb, &walks, 0);
	return bpf_redirect(f->at, 0);
}

/*
 * A flood. What changes from copy to copy is in a map: Linux 6.1's verifier looks at the callback of bpf_loop() once,
 * and takes what it finds on the stack for what is there each time.
 */
struct copying {
	__u64 left;	    /* interfaces to come */
	__u32 before;	    /* port of the interface before: the last one gets the frame itself */
	__u32 copies, lost; /* as in the counters */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copying);
} node_floods SEC(".maps");

struct copier {
	struct __sk_buff *skb;
	const struct settings *node;
	struct copying *all;
};

static long copy_to(__u32 number, struct copier *to)
{
	struct copying *c = to->all;
	__u32 interface = number + 1, port;

	if (interface > 63 || !(c->left >> interface))
		return 1;
	if (!(c->left >> interface & 1))
		return 0;
	port = port_of(to->node, interface);
	if (!port)
		return 0;
	if (c->before) {
		if (bpf_clone_redirect(to->skb, c->before, BPF_F_INGRESS))
			c->lost++;
		else
			c->copies++;
	}
	c->before = port;
	return 0;
}

/* May so many copies be made now? */
static __always_inline bool admits(__u64 copies)
{
	__u32 zero = 0;
	__u64 *bucket;

	if (!copies)
		return true;
	bucket = bpf_map_lookup_elem(&node_copies, &zero);
	return bucket && take_tokens(bucket, COPIES_AT_ONCE * NS_OF_COPY, copies * NS_OF_COPY, bpf_ktime_get_ns());
}

/* A copy enters each port as if the node had sent it there. The record is not touched meanwhile: copies wait. */
static __always_inline int flood(struct __sk_buff *skb, struct frame *f, const struct settings *n,
				 struct node_traffic *c, __u64 interfaces)
{
	__u32 zero = 0;
	struct copying *all = bpf_map_lookup_elem(&node_floods, &zero);
	struct copier to = {.skb = skb, .node = n, .all = all};

	interfaces &= n->interfaces & ~1ULL;
	if (!all || !interfaces)
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	if (!admits(__builtin_popcountll(interfaces) - 1))
		return drop_frame(c, PROGRAM_STORM);
	*all = (struct copying){.left = interfaces};
	bpf_loop(63, copy_to, &to, 0);
	c->copies += all->copies;
	c->lost += all->lost;
	if (!all->before)
		return drop_frame(c, PROGRAM_NO_INTERFACE);
	count_verdict(c, PERGOLA_FLOOD);
	return send_by(skb, f, all->before);
}

/* Does what the program says. */
static __always_inline int carry_out(struct __sk_buff *skb, struct frame *f, const struct settings *n,
				     struct node_traffic *c, const struct program_outcome *o)
{
	__u32 port;

	if (o->fault != PROGRAM_OK)
		return drop_frame(c, o->fault);
	switch (o->verdict) {
	case PERGOLA_SEND:
		port = port_of(n, o->output);
		if (!port)
			return drop_frame(c, PROGRAM_NO_INTERFACE);
		count_verdict(c, PERGOLA_SEND);
		return send_by(skb, f, port);
	case PERGOLA_FLOOD:
		return flood(skb, f, n, c, o->flood);
	case PERGOLA_PUNT:
		if (!n->slow_path)
			return drop_frame(c, PROGRAM_NO_SLOW_PATH);
		count_verdict(c, PERGOLA_PUNT);
		return punt_frame(skb, f);
	case PERGOLA_UDP:
		return drop_frame(c, PROGRAM_NO_UDP);
	default:
		count_verdict(c, PERGOLA_DROP);
		return TC_ACT_SHOT;
	}
}

/* Stands before a frame in the place of its addresses. */
struct tagged_addresses {
	__u8 addresses[2 * ETH_ALEN];
	struct {
		__be16 protocol;
		__be16 tci;
	} tags[MAX_TAGS];
};

/*
 * The kernel takes VLAN tags out of frames, and keeps them beside them. The program sees frames as they were sent: tags
 * are put back. A sum of the frame that the device gave would be wrong afterwards: such a frame is not plain.
 */
__noinline int put_tags_back(struct __sk_buff *skb)
{
	struct tagged_addresses head = {};
	__u32 tags = 0, length;

	if (bpf_csum_update(skb, 0) >= 0 || bpf_skb_load_bytes(skb, 0, head.addresses, sizeof(head.addresses)))
		return PROGRAM_NOT_PLAIN;
	for (int i = 0; i < MAX_TAGS && skb->vlan_present; i++) {
		head.tags[i].protocol = skb->vlan_proto;
		head.tags[i].tci = bpf_htons(skb->vlan_tci);
		tags++;
		if (bpf_skb_vlan_pop(skb)) /* moves the next tag beside the frame, too */
			return PROGRAM_NO_ROOM;
	}
	if (skb->vlan_present)
		return PROGRAM_NOT_PLAIN;
	length = tags > 1 ? sizeof(head) : sizeof(head) - sizeof(head.tags[0]);
	if (bpf_skb_change_head(skb, length - sizeof(head.addresses), 0) ||
	    bpf_skb_store_bytes(skb, 0, &head, length, 0))
		return PROGRAM_NO_ROOM;
	return PROGRAM_OK;
}

SEC("tc")
int node_tc(struct __sk_buff *skb)
{
	const struct settings *n = find_node_settings();
	struct program_record *r = find_program_record();
	struct node_traffic *c = find_node_counts();
	struct frame *f = find_frame();
	struct program_input in = {};
	__u32 met = programs_met(skb);
	enum program_fault why;

	if (!n || !r || !c || !f)
		return TC_ACT_SHOT;
	c->frames++;
	c->bytes += skb->len;
	if (met >= MAX_MET)
		return drop_frame(c, PROGRAM_LOOP);
	skb->mark = MARK_OURS | (met + 1);
	f->returned = RETURNED_SENT;
	if (skb->vlan_present) {
		f->returned = RETURNED_GROWN;
		why = put_tags_back(skb);
		if (why != PROGRAM_OK)
			return drop_frame(c, why);
	}
	in.interface = f->interface;
	in.interfaces = n->interfaces;
	in.first_table = n->table;
	in.tables = n->tables;
	run_skb(skb, r, &in);
	if (r->outcome.start < 0)
		f->returned = RETURNED_GROWN;
	else if (r->outcome.start)
		f->unread = true;
	return carry_out(skb, f, n, c, &r->outcome);
}

char _license[] SEC("license") = "Dual BSD/GPL";
