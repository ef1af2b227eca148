/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * pergola/stages.h: what the platform does between and after a program's stages. It is the same code in the kernel
 * (datapath/bpf/program.h) and in user space (pergola/run.c). Programs do not include it.
 *
 * Who includes it has scratch_size, key_reach, last_stage, find_filter() and find_next_filter(), and says by
 * PERGOLA_CALLED_ what a function is that is not to be inlined.
 */
#ifndef PERGOLA_STAGES_H
#define PERGOLA_STAGES_H

#include "program.h"

#define PERGOLA_ETHERNET_LENGTH 14

/* Why the platform dropped a frame that the program meant to send. */
enum program_fault {
	PROGRAM_OK = 0,
	PROGRAM_BAD_VERDICT, /* no verdict, or none that this stage may return */
	PROGRAM_BAD_START,   /* grown or shrunk beyond the window */
	PROGRAM_TOO_SHORT,   /* what is left is no frame */
	PROGRAM_NO_ROOM,     /* no memory to grow into */
	PROGRAM_NOT_PLAIN,   /* tc: a super-frame, or a VLAN tag beside the frame: a device has to make it plain first */
	PROGRAM_NO_SHRINK,   /* tc: less would be left than what the kernel takes for the frame's headers */

	/* Of a node in a network (datapath/bpf/node.c). */
	PROGRAM_NO_INTERFACE, /* the node has no such interface now */
	PROGRAM_NO_SLOW_PATH, /* punted, and nothing takes it */
	PROGRAM_NO_UDP,	      /* PERGOLA_UDP by an interface that is no UDP port of the node, or it has none */
	PROGRAM_LOOP,	      /* has met as many packet programs as a frame may */
	PROGRAM_STORM,	      /* more copies than the nodes of a slice may make */
	PROGRAM_METERED,      /* no processor time is left for the slice */
	PROGRAM_BAD_HEADER,   /* the slow path wrote a frame without a header as pergola/slow.h has it */
	PROGRAM_NO_PEER,      /* PERGOLA_UDP to where the node may not send */
	PROGRAM_UDP_RATE,     /* PERGOLA_UDP: more than the rate of the UDP port */
	PROGRAM_FAULTS,
};

enum program_stage {
	STAGE_LOAD = 1,
	STAGE_PARSE,
	STAGE_LOOKUP,
	STAGE_FORMAT,
	STAGE_STORE,
};

/* Where a frame came from. */
struct program_input {
	uint32_t interface;
	uint16_t outer_port;
	uint16_t single; /* no copies can be made here: a frame that is to be copied stays as it came (PROGRAM_ELSEWHERE) */
	uint64_t interfaces;
	uint64_t time; /* 0: now */
	uint8_t outer_address[16];
	uint32_t first_table; /* packet->table counts from there */
	uint32_t tables;      /* that the program has: at most PERGOLA_TABLES */
};

/* What becomes of the frame, after all checks. */
struct program_outcome {
	uint32_t verdict; /* enum pergola_verdict */
	enum program_fault fault;
	uint32_t matched; /* number of the filter; 0: none, or no lookup */
	int32_t start;
	uint32_t length; /* of the frame that leaves */
	uint32_t output;
	uint32_t queue;
	uint32_t flow;
	uint32_t reason;
	uint16_t port;
	uint8_t more;	/* the filter has it: copies may follow */
	uint8_t copies; /* that were formatted, but for the frame itself */
	uint64_t flood;
	uint8_t address[16];
};

struct program_scratch {
	uint64_t words[PERGOLA_SCRATCH_SIZE / 8];
};

/* What a lookup finds: in the kernel it is a struct filter_match (bpf/filter.h). */
struct program_match {
	struct pergola_result result;
	uint64_t version; /* of the table */
	uint64_t rank;	  /* of the filter */
	uint64_t search[6];
};

/* One for each CPU and slice (frame.h says why none is overwritten): a slice never sees memory of another one. */
struct program_record {
	struct pergola_packet packet; /* first: its window may be read beyond its end, into the rest */
	struct program_match match;
	struct program_scratch scratch;
	struct program_outcome outcome;
	uint64_t end;
};

/* In user space: filters, in the order of their priority. */
struct program_filter {
	uint64_t want[PERGOLA_KEY_SIZE / 8]; /* without bits that are not in the mask */
	uint64_t mask[PERGOLA_KEY_SIZE / 8];
	uint32_t table;
	uint32_t used;
	struct pergola_result result;
};

int pergola_parse(struct pergola_packet *packet, struct program_scratch *scratch);
int pergola_format(struct pergola_packet *packet, struct pergola_result *result, struct program_scratch *scratch);

/* Puts the result of the filter that wins in a table into the record. Returns the filter's number; 0: none matches. */
PERGOLA_INLINE_ uint32_t find_filter(struct program_record *r, uint32_t table);

/* The same, for the filter that comes next after the one in the record. */
PERGOLA_INLINE_ uint32_t find_next_filter(struct program_record *r, uint32_t table);

PERGOLA_INLINE_ bool is_match(const struct program_filter *f, const uint64_t *key)
{
	uint64_t differs = 0;

	for (int i = 0; i < PERGOLA_KEY_SIZE / 8; i++)
		differs |= (key[i] & f->mask[i]) ^ f->want[i];
	return !differs;
}

/* From here to the key are the fields that are marked "out", but for the first: whole words. */
#define PERGOLA_OUT offsetof(struct pergola_packet, table)
_Static_assert(PERGOLA_OUT % 8 == 0 && offsetof(struct pergola_packet, start) + 4 == PERGOLA_OUT &&
		       offsetof(struct pergola_packet, key) % 8 == 0,
	       "words");

/* The packet has been loaded: its window, its length and what of the window is its own are there. */
PERGOLA_INLINE_ void begin_program(struct program_record *r, const struct program_input *in)
{
	const uint32_t key = key_reach, scratch = scratch_size; /* read once: the loader makes them constants */
	struct pergola_packet *p = &r->packet;

	p->interface = in->interface;
	p->interfaces = in->interfaces;
	p->time = in->time;
	__builtin_memcpy(p->outer_address, in->outer_address, sizeof(p->outer_address));
	p->outer_port = in->outer_port;
	p->start = 0;
	for (uint32_t i = PERGOLA_OUT / 8; i < offsetof(struct pergola_packet, key) / 8; i++)
		((uint64_t *)p)[i] = 0;
	p->miss = PERGOLA_PUNT;
	for (uint32_t i = 0; i < PERGOLA_KEY_SIZE / 8; i++) {
		if (i * 8 >= key)
			break;
		((uint64_t *)p->key)[i] = 0;
	}
	for (uint32_t i = 0; i < PERGOLA_SCRATCH_SIZE / 8; i++) {
		if (i * 8 >= scratch)
			break;
		r->scratch.words[i] = 0;
	}
	r->outcome.matched = 0;
	r->outcome.more = 0;
	r->outcome.copies = 0;
}

PERGOLA_INLINE_ bool is_final(uint32_t verdict) { return verdict <= PERGOLA_PUNT && verdict != PERGOLA_LOOKUP; }

PERGOLA_INLINE_ bool leaves(uint32_t verdict)
{
	return verdict == PERGOLA_SEND || verdict == PERGOLA_FLOOD || verdict == PERGOLA_UDP;
}

/* Not a verdict: the frame is to be copied, where that can be done. No format has seen it. */
#define PROGRAM_ELSEWHERE 0xff

/* Has format look at the frame, or a copy, with the result in the record. */
PERGOLA_INLINE_ uint32_t format_frame(struct program_record *r, uint32_t verdict)
{
	struct pergola_result *result = &r->match.result;
	struct pergola_packet *p = &r->packet;

	p->output = result->interface;
	p->queue = result->queue;
	p->port = result->port;
	if (verdict == PERGOLA_FLOOD)
		p->flood = result->flood;
	else
		__builtin_memcpy(p->address, result->address, sizeof(p->address));
	return pergola_format(p, result, &r->scratch);
}

/* A lookup, and what comes of it. Returns a verdict, which may be PERGOLA_LOOKUP. */
PERGOLA_INLINE_ uint32_t look_up(struct program_record *r, const struct program_input *in)
{
	struct pergola_result *result = &r->match.result;
	struct pergola_packet *p = &r->packet;
	uint32_t verdict;

	r->outcome.matched = 0;
	if (p->table < in->tables)
		r->outcome.matched = find_filter(r, in->first_table + p->table);
	verdict = r->outcome.matched ? result->verdict : p->miss;
	if (!leaves(verdict))
		return is_final(verdict) ? verdict : PROGRAM_ELSEWHERE;
	if (!r->outcome.matched) {
		*result = (struct pergola_result){};
		result->verdict = verdict;
	}
	if (last_stage < STAGE_FORMAT)
		return PERGOLA_DROP;
	r->outcome.more = verdict == PERGOLA_SEND && result->more;
	if (r->outcome.more && in->single)
		return PROGRAM_ELSEWHERE;
	return format_frame(r, verdict);
}

/* The same, by a call: in the kernel it is verified once, whatever came before it. */
PERGOLA_CALLED_ uint32_t look_up_again(struct program_record *r, const struct program_input *in)
{
	return r && in ? look_up(r, in) : (uint32_t)PERGOLA_DROP;
}

/* parse, lookup, format. Returns a verdict that is not checked yet. */
PERGOLA_INLINE_ uint32_t run_stages(struct program_record *r, const struct program_input *in)
{
	uint32_t verdict;

	if (last_stage < STAGE_PARSE)
		return PERGOLA_DROP;
	verdict = pergola_parse(&r->packet, &r->scratch);
	if (verdict != PERGOLA_LOOKUP)
		return verdict;
	if (last_stage < STAGE_LOOKUP)
		return PERGOLA_DROP;
	verdict = look_up(r, in);
	for (uint32_t i = 1; i < PERGOLA_LOOKUPS && verdict == PERGOLA_LOOKUP; i++)
		verdict = look_up_again(r, in);
	return verdict;
}

PERGOLA_INLINE_ enum program_fault check_length(uint32_t length, int32_t start)
{
	if (start < -PERGOLA_HEADROOM || start > PERGOLA_WINDOW || start > (int32_t)length)
		return PROGRAM_BAD_START;
	if ((int32_t)length - start < PERGOLA_ETHERNET_LENGTH)
		return PROGRAM_TOO_SHORT;
	return PROGRAM_OK;
}

/* Takes from the packet what becomes of the frame. length: of the frame that came. */
PERGOLA_INLINE_ void conclude(struct program_record *r, uint32_t verdict, uint32_t length)
{
	const struct pergola_packet *p = &r->packet;
	struct program_outcome *o = &r->outcome;

	o->verdict = verdict;
	o->fault = PROGRAM_OK;
	o->output = p->output;
	o->queue = p->queue;
	o->flow = p->flow;
	o->reason = p->reason;
	o->flood = p->flood;
	o->port = p->port;
	__builtin_memcpy(o->address, p->address, sizeof(o->address));
	o->start = 0;
	o->length = length;
	if (!is_final(verdict))
		o->fault = PROGRAM_BAD_VERDICT;
	if (!leaves(verdict))
		return;
	o->start = p->start;
	o->fault = check_length(length, o->start);
	o->length = length - o->start;
}

/* Is there a copy to be made? Then its result is in the record. */
PERGOLA_INLINE_ bool find_copy(struct program_record *r, uint32_t first_table, uint32_t tables)
{
	uint32_t table = r->packet.table;

	if (!r->outcome.more || table >= tables)
		return false;
	r->outcome.matched = find_next_filter(r, first_table + table);
	if (!r->outcome.matched || r->match.result.verdict != PERGOLA_SEND)
		return false;
	r->outcome.more = r->match.result.more;
	return true;
}

/* Of the frame that leaves. What is in the packet, the program may have written. */
PERGOLA_INLINE_ uint32_t length_that_came(const struct program_record *r)
{
	return r->outcome.length + r->outcome.start;
}

/*
 * Makes the record that of the copy of this number. What leaves is PERGOLA_SEND without a fault, and begins where the
 * frame does.
 */
PERGOLA_INLINE_ void format_copy(struct program_record *r, uint32_t number)
{
	struct program_outcome *o = &r->outcome;
	uint32_t length = length_that_came(r), verdict;
	int32_t start = o->start;

	r->packet.copy = number;
	verdict = format_frame(r, PERGOLA_SEND);
	if (verdict != PERGOLA_SEND && verdict != PERGOLA_DROP)
		verdict = PERGOLA_LOOKUP; /* which is none of a copy's */
	conclude(r, verdict, length);
	if (verdict == PERGOLA_SEND && o->start != start)
		o->fault = PROGRAM_BAD_START;
	o->start = start;
	o->length = length - start;
	o->copies = number;
}

/* Does it leave so that copies may follow? */
PERGOLA_INLINE_ bool is_copied(const struct program_outcome *o)
{
	return o->more && o->verdict == PERGOLA_SEND && o->fault == PROGRAM_OK;
}

#endif
