/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * pergola/slow.h: frames between a packet program and its slow path, a process in the node's sliver.
 *
 * The process asks the control socket for the slow path ({"do": "slow_path"}) and gets a file descriptor: each read(2)
 * gives one frame that the program punted, each write(2) is one frame that it sends. Before each frame, in both
 * directions, is this header. All numbers are in network order. What is zero here stays zero.
 *
 * docs/slowpath.md says more; examples/slow/slow.c is an example.
 */
#ifndef PERGOLA_SLOW_H
#define PERGOLA_SLOW_H

#ifdef __bpf__ /* the platform's own programs, which have no C library */
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#else
#include <stdint.h>
#endif

#define PERGOLA_SLOW_VERSION 1
#define PERGOLA_SLOW_ETHERTYPE 0x0800

enum pergola_slow_kind {
	/* Read. */
	PERGOLA_SLOW_PUNTED = 1, /* by the program, as it came */

	/* Written. */
	PERGOLA_SLOW_SEND = 2,	/* goes out by `interface`, into its queue `queue`, past the program */
	PERGOLA_SLOW_ENTER = 3, /* goes into the program, as if it had come by `interface` */
};

struct pergola_slow {
	uint8_t zero[12];
	uint16_t ethertype; /* PERGOLA_SLOW_ETHERTYPE */
	uint8_t version;    /* PERGOLA_SLOW_VERSION */
	uint8_t kind;	    /* enum pergola_slow_kind */
	uint16_t header;    /* bytes of this header */
	uint16_t interface; /* the node's own number, from 1 */

	/* What is punted has these, as the program left them; of what is written, only the queue is read. */
	uint32_t reason;   /* packet->reason */
	uint32_t flow;	   /* packet->flow */
	uint32_t queue;	   /* packet->queue; 0 is that of frames for which none is chosen */
	uint64_t time;	   /* of the punt: ns, CLOCK_MONOTONIC */
	uint32_t length;   /* of the frame, without this header: bytes */
	uint16_t outer_port;
	uint16_t table;	   /* packet->table */
	uint8_t outer_address[16];
	uint8_t key[64];   /* that the program built */
} __attribute__((packed));

_Static_assert(sizeof(struct pergola_slow) == 128, "layout");

#endif
