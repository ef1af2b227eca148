/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * pergola/program.h: what a packet program is written against. It needs no kernel header and no C library.
 *
 * A packet program is the code of one node of a slice. Its frames go through these stages:
 *
 *	frame comes in -> parse -> lookup -> format -> queue -> frame goes out
 *	                  yours    filters   yours
 *
 *	#include <pergola/program.h>
 *
 *	PERGOLA_KEY {				 // what filters of this program match
 *		uint16_t type;
 *	};
 *
 *	PERGOLA_PARSE(packet)
 *	{
 *		uint16_t *type = pergola_header(packet, 12, uint16_t);
 *
 *		if (packet->length < 14)
 *			return PERGOLA_DROP;
 *		pergola_key(packet)->type = *type;
 *		return PERGOLA_LOOKUP;
 *	}
 *
 *	PERGOLA_FORMAT(packet, result)
 *	{
 *		return result->verdict;		 // as the filter that matched says
 *	}
 *
 * Without PERGOLA_FORMAT frames go out as they came. Build with `pergola program build x.c`, try with
 * `pergola program test x.o --frame frames.pcap`.
 *
 * What the code may do: read and write the packet, the result and its scratch memory; read and write its own memory
 * (PERGOLA_MEMORY, and global variables) and counters; call the functions below and its own; loop a bounded number of
 * times. It has no pointers into the frame itself: the frame's first bytes are in a window that is always there in
 * full, so a read behind the frame's end gives zeros. What it may not do, the loader refuses, with the line.
 *
 * The same source is built for user space by `pergola program build --user x.c`.
 */
#ifndef PERGOLA_PROGRAM_H
#define PERGOLA_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this interface. An object says which one it was compiled against; the loader refuses others. */
#define PERGOLA_VERSION 1

#define PERGOLA_WINDOW 256   /* so many of the frame's first bytes are in the window */
#define PERGOLA_HEADROOM 128 /* by so many bytes the frame can grow at its beginning */
#define PERGOLA_KEY_SIZE 64
#define PERGOLA_TABLES 8 /* of filters, that a program has: packet->table */
#define PERGOLA_SCRATCH_SIZE 256
#define PERGOLA_LOOKUPS 4 /* of one frame: parse asks for the first, format for others */
#define PERGOLA_COPIES 8  /* of one frame that differ, itself included: pergola_result.more */
#define PERGOLA_INTERFACES 63 /* interfaces that a node can have, and a flood can name */

/* What becomes of the frame. Parse and format each return one. */
enum pergola_verdict {
	PERGOLA_DROP = 0,
	PERGOLA_LOOKUP, /* look the key up in table packet->table, then format. From format: once more */
	PERGOLA_SEND,	/* out by interface packet->output. From parse: without lookup and format */
	PERGOLA_FLOOD,	/* a copy out by each interface in packet->flood */
	PERGOLA_UDP,	/* in a UDP packet to packet->address and packet->port, where the slice may send that */
	PERGOLA_PUNT,	/* to the node's slow path, as it came; where that is a process, with what slow.h says */
};

/*
 * One frame, and what is to become of it. The program may write all of it; the platform reads of it what is marked
 * "out", and believes nothing else.
 */
struct pergola_packet {
	/* What came. */
	uint32_t length;	/* bytes, with the Ethernet header */
	uint32_t interface;	/* by which it came: the node's own number, from 1 */
	uint64_t interfaces;	/* that the node has and that are up: bit i is interface i, from 1 to 63 */
	uint64_t time;		/* call pergola_time() */
	uint8_t outer_address[16]; /* sender of the UDP packet in which it came, IPv4 as ::ffff:a.b.c.d; or zeros */
	uint16_t outer_port;	/* the same: its port, host order; 0: it came as a frame */
	uint16_t loaded;	/* so many bytes of the window are the frame's */

	/* Out. All zero when parse begins, but for `miss`. */
	int32_t start;	  /* where the frame that leaves begins in the one that came; negative: it grows */
	uint32_t table;	  /* for PERGOLA_LOOKUP: 0 to PERGOLA_TABLES - 1; in others nothing matches */
	uint32_t output;  /* for PERGOLA_SEND: interface. Before format: the result's */
	uint32_t queue;	  /* of the output. Before format: the result's */
	uint32_t flow;	  /* a number that the program gives the frame's flow; 0: none */
	uint32_t reason;  /* for PERGOLA_PUNT: a number of the program's own, which a process is told */
	uint32_t miss;	  /* enum pergola_verdict where no filter matches: PERGOLA_PUNT, unless parse says otherwise */
	uint64_t flood;	  /* for PERGOLA_FLOOD: bit i is interface i. Before format: the result's */
	uint8_t address[16]; /* for PERGOLA_UDP: as outer_address. Before format: the result's */
	uint16_t port;	  /* for PERGOLA_UDP: host order. Before format: the result's */
	uint16_t copy;	  /* what format is called for: 0 is the frame; 1, 2, ... are copies of it (pergola_result.more) */
	uint16_t pad[2];
	uint8_t key[PERGOLA_KEY_SIZE] __attribute__((aligned(8)));

	/*
	 * The frame begins at window[PERGOLA_HEADROOM]; pergola_header() and pergola_at() count from there. An IP
	 * header behind an Ethernet header is aligned to eight bytes.
	 */
	uint8_t align[2];
	uint8_t window[PERGOLA_HEADROOM + PERGOLA_WINDOW];
	uint8_t pad2[6];
} __attribute__((aligned(8)));

/*
 * What the filter says that matched; all zero where none did. Addresses in network order, numbers in host order.
 *
 * A filter with `more` sends, and so does the next one that matches, in the order in which they win; that one may have
 * `more`, too. Each sends a copy of its own: if format returns PERGOLA_SEND for the frame (packet->copy 0), it is called
 * again for each copy, with that filter's result. The window is as the call before left it. packet->start stays as it
 * was for the frame. Format returns PERGOLA_SEND, or PERGOLA_DROP for a copy that is not to be. Where a frame came to the
 * node in XDP, parse runs once more for one that is to be copied.
 */
struct pergola_result {
	uint8_t verdict; /* enum pergola_verdict */
	uint8_t more;	 /* for PERGOLA_SEND: not 0: the next filter that matches sends a copy */
	uint16_t port;
	uint32_t interface;
	uint32_t queue;
	uint32_t pad2;
	union {
		uint8_t address[16]; /* for PERGOLA_UDP */
		uint64_t flood;	     /* for PERGOLA_FLOOD */
	};
	uint8_t arguments[32] __attribute__((aligned(8))); /* for format; their meaning is the program's own */
};

#define PERGOLA_INLINE_ static inline __attribute__((always_inline, unused))

/*
 * PERGOLA_PARSE(packet) { ... } is a function of a struct pergola_packet *packet that returns an enum pergola_verdict.
 * PERGOLA_FORMAT(packet, result) { ... } has a struct pergola_result *result, too: a copy, for this frame alone. A
 * program that has declared scratch memory may take it as the last argument: PERGOLA_PARSE(packet, scratch) and
 * PERGOLA_FORMAT(packet, result, scratch). Pointers are never NULL.
 */
#define PERGOLA_PARSE(...) PERGOLA_THIRD_(__VA_ARGS__, PERGOLA_PARSE_2_, PERGOLA_PARSE_1_, 0)(__VA_ARGS__)
#define PERGOLA_FORMAT(packet, ...)                                                                                    \
	PERGOLA_THIRD_(__VA_ARGS__, PERGOLA_FORMAT_2_, PERGOLA_FORMAT_1_, 0)(packet, __VA_ARGS__)
#define PERGOLA_THIRD_(first, second, third, ...) third

/*
 * PERGOLA_SCRATCH { fields };
 *
 * declares scratch memory: what parse leaves for format. It is zeroed before parse. At most PERGOLA_SCRATCH_SIZE bytes;
 * a frame pays for those that are declared.
 */
#define PERGOLA_SCRATCH struct pergola_scratch

/*
 * PERGOLA_KEY { fields };
 *
 * declares the key that parse builds and filters match: at most PERGOLA_KEY_SIZE bytes. Fields are in host order or
 * network order, as the program likes; filters written by name take integers in network order. pergola_key(packet)
 * points to it. It is zeroed before parse.
 */
#define PERGOLA_KEY                                                                                                    \
	struct pergola_key;                                                                                            \
	PERGOLA_INLINE_ struct pergola_key *pergola_key(struct pergola_packet *packet)                                 \
	{                                                                                                              \
		return (struct pergola_key *)packet->key;                                                              \
	}                                                                                                              \
	PERGOLA_NOTE_("key") struct pergola_key *pergola_key_note_;                                                    \
	struct pergola_key

/*
 * PERGOLA_MEMORY(type, count);
 *
 * declares the slice's memory: an array that all cores share, that outlives frames and replacements of the program,
 * and that the slow path maps. 16 MiB at most. pergola_memory(i) is the address of element i, NULL where there is
 * none. Write what others read with one store (of at most eight bytes), or with the __sync functions of the compiler;
 * those that give a number back, like __sync_fetch_and_add(), take 32 and 64 bits.
 *
 * Global variables are the slice's memory, too: those that are not const. They are kept at a replacement if their
 * size is the same.
 */

/*
 * PERGOLA_COUNTERS { uint64_t forwarded, refused; };
 *
 * declares counters: at most 64, all uint64_t. Each core has its own; users read the sum, by name.
 * pergola_count(forwarded) adds 1, pergola_count(bytes, packet->length) adds a number.
 */
#define PERGOLA_MAX_COUNTERS 64
#define pergola_count(...) PERGOLA_THIRD_(__VA_ARGS__, PERGOLA_COUNT_2_, PERGOLA_COUNT_1_, 0)(__VA_ARGS__)
#define PERGOLA_COUNT_1_(name) PERGOLA_COUNT_2_(name, 1)

/*
 * The address of a header of this type in the window. The offset is a constant, counted from where the frame began
 * when it came: -14 is where a header of 14 bytes goes that is put before it.
 */
#define pergola_header(packet, offset, type)                                                                           \
	({                                                                                                             \
		_Static_assert((int)(offset) >= -PERGOLA_HEADROOM, "before the window");                               \
		_Static_assert((int)(offset) + (int)sizeof(type) <= PERGOLA_WINDOW, "behind the window");              \
		(type *)((packet)->window + PERGOLA_HEADROOM + (int)(offset));                                         \
	})

/* Hides from the compiler what it knows of a value, so that it tests the register that it then uses. */
#define PERGOLA_OPAQUE_(value) __asm__ volatile("" : "+r"(value))

/*
 * The address of `size` bytes in the window, at an offset that is computed; NULL where they are not all in it. Size is
 * a constant.
 */
PERGOLA_INLINE_ void *pergola_at(struct pergola_packet *packet, int32_t offset, uint32_t size)
{
	uint64_t at = (uint32_t)(offset + PERGOLA_HEADROOM);

	PERGOLA_OPAQUE_(at);
	if (size > sizeof(packet->window) || at > sizeof(packet->window) - size)
		return NULL;
	return packet->window + at;
}

/*
 * The frame that leaves begins so many bytes earlier than it would: room for a header, which the program then writes.
 * False: the window has no more room. Lengths that are added up in several calls count from the same place:
 * pergola_at(packet, packet->start, ...) is where the frame begins.
 */
PERGOLA_INLINE_ bool pergola_grow(struct pergola_packet *packet, uint32_t bytes)
{
	if (bytes > PERGOLA_HEADROOM || packet->start - (int32_t)bytes < -PERGOLA_HEADROOM)
		return false;
	packet->start -= bytes;
	return true;
}

/* The frame that leaves begins so many bytes later: its first bytes are cut off. False: it has not so many. */
PERGOLA_INLINE_ bool pergola_shrink(struct pergola_packet *packet, uint32_t bytes)
{
	if (bytes > PERGOLA_WINDOW || packet->start + (int32_t)bytes > (int32_t)packet->loaded)
		return false;
	packet->start += bytes;
	return true;
}

/*
 * return pergola_send_udp(packet, interface, address, port);
 *
 * sends the frame in a UDP packet, by one of the node's UDP ports (interface 0: the first): what stands behind the
 * frame's first 14 bytes is the payload. The address (IPv4) and the port are in network order.
 */
PERGOLA_INLINE_ int pergola_send_udp(struct pergola_packet *packet, uint32_t interface, uint32_t address, uint16_t port)
{
	uint32_t *to = (uint32_t *)packet->address;

	to[0] = to[1] = 0;
	packet->address[8] = packet->address[9] = 0;
	packet->address[10] = packet->address[11] = 0xff;
	to[3] = address;
	packet->port = (uint16_t)(port << 8 | port >> 8);
	packet->output = interface;
	return PERGOLA_UDP;
}

/* Byte order. Constants cost nothing. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define pergola_swap16(x) ((uint16_t)__builtin_bswap16(x))
#define pergola_swap32(x) ((uint32_t)__builtin_bswap32(x))
#define pergola_swap64(x) ((uint64_t)__builtin_bswap64(x))
#else
#define pergola_swap16(x) ((uint16_t)(x))
#define pergola_swap32(x) ((uint32_t)(x))
#define pergola_swap64(x) ((uint64_t)(x))
#endif
#define pergola_ntohs(x) pergola_swap16(x)
#define pergola_htons(x) pergola_swap16(x)
#define pergola_ntohl(x) pergola_swap32(x)
#define pergola_htonl(x) pergola_swap32(x)
#define pergola_ntohll(x) pergola_swap64(x)
#define pergola_htonll(x) pergola_swap64(x)

/* Folds a sum of 16-bit words to the Internet checksum (RFC 1071), in the order of the words. */
PERGOLA_INLINE_ uint16_t pergola_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A checksum after one 16-bit word that it covers has changed (RFC 1624, eqn. 3). All in network order. */
PERGOLA_INLINE_ uint16_t pergola_fix_checksum(uint16_t checksum, uint16_t was, uint16_t is)
{
	return pergola_fold((uint64_t)(uint16_t)~checksum + (uint16_t)~was + is);
}

/*
 * What follows is different in the kernel and in user space.
 */
#ifdef __bpf__

#define PERGOLA_SECTION_(name) __attribute__((section(name), used))
#define PERGOLA_NOTE_(name) __attribute__((section(".pergola." name), used))

PERGOLA_NOTE_("version") const uint32_t pergola_version_ = PERGOLA_VERSION;

/* Linux 6.1 takes no pointer argument of a global function for one that is never NULL. */
#define PERGOLA_PARSE_1_(packet)                                                                                       \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet);                                             \
	PERGOLA_SECTION_("pergola/parse") int pergola_parse(struct pergola_packet *pergola_p, void *pergola_s)         \
	{                                                                                                              \
		(void)pergola_s;                                                                                       \
		return pergola_p ? pergola_parse_(pergola_p) : PERGOLA_DROP;                                           \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet)
#define PERGOLA_PARSE_2_(packet, scratch)                                                                              \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet, struct pergola_scratch *scratch);            \
	PERGOLA_SECTION_("pergola/parse")                                                                              \
	int pergola_parse(struct pergola_packet *pergola_p, struct pergola_scratch *pergola_s)                         \
	{                                                                                                              \
		return pergola_p && pergola_s ? pergola_parse_(pergola_p, pergola_s) : PERGOLA_DROP;                   \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_parse_(struct pergola_packet *packet, struct pergola_scratch *scratch)
#define PERGOLA_FORMAT_1_(packet, result)                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result);             \
	PERGOLA_SECTION_("pergola/format")                                                                             \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r, void *pergola_s)        \
	{                                                                                                              \
		(void)pergola_s;                                                                                       \
		return pergola_p && pergola_r ? pergola_format_(pergola_p, pergola_r) : PERGOLA_DROP;                  \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result)
#define PERGOLA_FORMAT_2_(packet, result, scratch)                                                                     \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result,              \
					    struct pergola_scratch *scratch);                                          \
	PERGOLA_SECTION_("pergola/format")                                                                             \
	int pergola_format(struct pergola_packet *pergola_p, struct pergola_result *pergola_r,                         \
			   struct pergola_scratch *pergola_s)                                                          \
	{                                                                                                              \
		return pergola_p && pergola_r && pergola_s ? pergola_format_(pergola_p, pergola_r, pergola_s)          \
							   : PERGOLA_DROP;                                             \
	}                                                                                                              \
	PERGOLA_INLINE_ int pergola_format_(struct pergola_packet *packet, struct pergola_result *result,              \
					    struct pergola_scratch *scratch)

/* Helpers of the kernel (linux/bpf.h), by their numbers. */
static void *(*const pergola_map_lookup_)(const void *map, const void *key) __attribute__((unused)) = (void *)1;
static uint64_t (*const pergola_ktime_)(void) __attribute__((unused)) = (void *)5;
static uint32_t (*const pergola_random_)(void) __attribute__((unused)) = (void *)7;

#define PERGOLA_MAP_(name, kind, flags, type_, count)                                                                  \
	struct {                                                                                                       \
		int (*type)[kind];                                                                                     \
		int (*max_entries)[count];                                                                             \
		int (*map_flags)[flags];                                                                               \
		uint32_t *key;                                                                                         \
		type_ *value;                                                                                          \
	} name PERGOLA_SECTION_(".maps")

#define PERGOLA_MEMORY(type, count)                                                                                    \
	PERGOLA_MAP_(pergola_memory_map, 2 /* array */, 1 << 10 /* mmapable */, type, count);                          \
	PERGOLA_INLINE_ type *pergola_memory(uint32_t index)                                                           \
	{                                                                                                              \
		return pergola_map_lookup_(&pergola_memory_map, &index);                                               \
	}                                                                                                              \
	_Static_assert((uint64_t)sizeof(type) * (count) <= 16 << 20, "at most 16 MiB")

#define PERGOLA_COUNTERS                                                                                               \
	struct pergola_counters;                                                                                       \
	PERGOLA_MAP_(pergola_counters_map, 6 /* per-CPU array */, 0, struct pergola_counters, 1);                      \
	struct pergola_counters
#define PERGOLA_COUNT_2_(name, number)                                                                                 \
	do {                                                                                                           \
		uint32_t pergola_zero_ = 0;                                                                            \
		struct pergola_counters *pergola_c_ =                                                                  \
			pergola_map_lookup_(&pergola_counters_map, &pergola_zero_);                                    \
                                                                                                                       \
		if (pergola_c_)                                                                                        \
			pergola_c_->name += (number);                                                                  \
	} while (0)

/* ns since this host was started (CLOCK_MONOTONIC); all calls for one frame give the same. */
PERGOLA_INLINE_ uint64_t pergola_time(struct pergola_packet *packet)
{
	if (!packet->time)
		packet->time = pergola_ktime_();
	return packet->time;
}

/* A random number, not for secrets. */
PERGOLA_INLINE_ uint32_t pergola_random(void) { return pergola_random_(); }

#else /* user space */

#include <pergola/user.h>

#endif

#endif
