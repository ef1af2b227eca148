/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The record of the work on one frame: what it is like, where it is, what nodes on its way did to it, and what has to
 * be written in the end. It holds numbers and no pointers, so that global functions, which the verifier checks once
 * and by themselves, take it as their argument. docs/decisions/008-one-record-in-per-cpu-memory.md has the
 * measurements.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "edit.h"
#include "header.h"
#include "ports.h"
#include "punt.h"
#include "reasons.h"

#define MAX_HOPS 64

/* A router that was passed: the ports of its two interfaces. */
struct pass {
	__u16 in, out; /* MAX_PORTS fits */
};

#define MAX_OUTER 56 /* IPv6, UDP, VXLAN: the longest outer header, without Ethernet */
#define OUTER_MASK 63 /* MAX_OUTER fits. A masked length is bounded in any register, also for Linux 6.1's verifier. */
#define MAX_TAGS 2

struct tag {
	__be16 tci;
	__be16 next; /* EtherType behind it */
};

/* VLAN tags that the kernel keeps beside the frame, outermost first. */
struct tags {
	__u32 number;
	__be16 protocol[MAX_TAGS];
	__be16 tci[MAX_TAGS];
};

/* Outer headers that are to stand before the frame. */
struct wrapping {
	__u8 align[2];
	struct ethhdr eth; /* underlay_egress and the line card fill the addresses in */
	/* Outer header; behind it, for programs of tc, the frame's own Ethernet header with its VLAN tags. */
	__u8 bytes[OUTER_MASK + ETH_HLEN + MAX_TAGS * sizeof(struct tag) + 3];
} __attribute__((aligned(8)));

/*
 * With what a node's packet program (node.c) gives a frame back to the platform's (walk_on in port.c). While the program
 * is called, what is to be done with a frame that the node's slow path wrote (slow_inject in port.c).
 */
enum returned {
	RETURNED_SENT = 0, /* out by the port `from` */
	RETURNED_PUNTED,   /* to the node itself, as it came to the port `at` */
	RETURNED_GROWN,	   /* not at all: it enters anew, because it has grown or a slow path wrote it */

	WRITTEN_TO_SEND,    /* out by `interface`, */
	WRITTEN_TO_ENTER,   /* into the program, as if it had come by `interface`, */
	WRITTEN_BADLY,	    /* or nothing: counted, and dropped */
};

struct frame {
	struct header header; /* a copy of the frame's head; nodes on the way change the copy */

	/* What the frame is like. */
	__u32 length;  /* with the Ethernet header, without an accelerated VLAN tag */
	__u32 segment; /* payload of each of the frames that a GSO super-frame stands for; 0: no super-frame */
	__u32 longest; /* at least the length of the longest of these frames; of any other frame its length */
	__u32 packet;  /* length of the longest IP packet that the frame stands for */
	__u32 tagged;  /* has an accelerated VLAN tag */
	__u8 copied;   /* the header has been copied */
	__u8 unread;   /* it is not what the kernel noted about it: it goes through a device, which reads it again */
	__u8 split;    /* XDP: what came lies in more than one buffer */
	__u8 ecn;      /* of the outer header that it came with */

	/* Where it is (link.h). */
	__u32 from;    /* port by which it entered its link */
	__u32 at;      /* port at the link's other end; undefined where a bridge has the frame (MODE_KERNEL) */
	enum mode mode; /* how it gets there */
	__u8 external; /* the other end has no node: it leads out of the machine */
	__u8 policed;  /* untraced: it crossed a link whose policer has not been asked yet (police.h) */
	__u8 reserved; /* it goes by an LSP, within what that has reserved (reserve.h) */

	/* What nodes on the way did (walk.h). */
	__u8 untraced; /* XDP: the walk may come to nothing, so it must leave no trace */
	__u8 family;   /* enum leg_flags that interfaces on the way must have */
	__u32 begin;   /* XDP: where the frame begins in what came, behind outer headers, */
	__u32 entered; /* and the port by which it came in */
	__u64 flow;    /* hash of the flow; 0: not computed yet */
	__u64 tick;    /* jiffies when `now` was read: these two outlive the frame */
	__u64 now;     /* ns, by the coarse clock */
	__u32 source;  /* router that has the source address; 0: none; MANY */
	enum punt refused; /* by any router, because of the header */
	__u32 router;  /* the last router that the frame came to */
	enum punt why; /* the frame is handed to that router's kernel; WALK_ON: it is not; TO_PROGRAM */
	enum reason drop;
	__u32 hops;
	__u32 interface; /* by which it came to a node with a packet program: a number of that node's own */
	__u32 returned;  /* enum returned: what a packet program has made of it */
	__u32 queue;     /* that a packet program chose, of the port by which its node sends: it is there, or 0 */
	__u16 met;       /* XDP: how many packet programs it has met (node.h) */
	__u16 by_card;   /* XDP: it came in by a network card, in a tunnel */
	__be32 outer_address; /* sender of the UDP packet in which it comes to a packet program (udp.h), */
	__be16 outer_port;    /* and its port; 0: it came as a frame, or in no call of a program */
	__u16 outer_pad;
	__u64 flood;     /* handed over to be copied to these interfaces (handover.h); 0: it is not */
	struct edit edit;
	struct tags tags; /* taken off, to stand behind the frame's Ethernet header in a tunnel */
	struct wrapping outer;
	struct pass passed[MAX_HOPS];
};

/*
 * One record for each CPU. All programs run in softirq context or with bottom halves off (tc ingress, native and
 * generic XDP, and BPF_PROG_TEST_RUN since Linux 6.7), so none is interrupted by another one on the same CPU. No
 * program calls anything that runs a second one before it has returned: redirects happen afterwards. PREEMPT_RT keeps
 * that by its lock for bottom halves; a kernel without the lock (PREEMPT_RT_NEEDS_BH_LOCK=n, Linux 6.18) would need a
 * record for each task.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

static __always_inline struct frame *find_frame(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&frames, &zero);
}

/* The coarse clock moves with jiffies, which take one load: it is read once a tick. */
static __always_inline __u64 coarse_clock(struct frame *f)
{
	__u64 tick = bpf_jiffies64();

	if (f->tick != tick) {
		f->tick = tick;
		f->now = bpf_ktime_get_coarse_ns();
	}
	return f->now;
}

/* How many frames it stands for. */
static __always_inline __u64 frames_of(const struct frame *f)
{
	if (!f->segment || f->longest <= f->segment) /* SCTP's super-frames do not say how long their packets are */
		return 1;
	return 1 + (f->length - f->longest + f->segment - 1) / f->segment;
}

/* The record is as the last frame left it. What is not set here is set before it is read. */
static __always_inline void clear_frame(struct frame *f, bool untraced)
{
	f->segment = 0;
	f->tagged = 0;
	f->copied = 0;
	f->unread = 0;
	f->external = 0; /* these four in one store */
	f->policed = 0;
	f->reserved = 0;
	f->untraced = untraced;
	f->family = 0;
	f->begin = 0;
	f->hops = 0;
	f->queue = 0;
	f->why = WALK_ON;
	f->tags.number = 0;
	f->edit = (struct edit){};
}
