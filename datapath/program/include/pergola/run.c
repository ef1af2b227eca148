// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * pergola/run.c: runs a program in user space. `pergola program build --user x.c` compiles it together with x.c:
 *
 *	x INTERFACE...          the node's interfaces 1, 2, ...: frames come from and go to these devices
 *	x --stdin               frames and where they come from on standard input, what becomes of them on standard output
 *
 * A file in PERGOLA_FILTERS (environment) holds filters, as `pergola program build --user --filters` writes it; one in
 * PERGOLA_MEMORY, what the program's memory begins with. Frames that are punted, and those to a UDP port, are dropped
 * when they come from devices: they take the platform.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pergola/program.h>

#define scratch_size pergola_scratch_size
static const uint32_t last_stage = 5; /* STAGE_STORE */
static const uint32_t key_reach = PERGOLA_KEY_SIZE;

#define PERGOLA_CALLED_ static
#include <pergola/stages.h>

#define MAX_FRAME 65536
#define MAX_FILTERS 4096

uint64_t pergola_counter_values[PERGOLA_MAX_COUNTERS];

static struct program_filter filters[MAX_FILTERS];
static struct program_record record;

__attribute__((weak)) int pergola_format(struct pergola_packet *packet, struct pergola_result *result,
					 struct program_scratch *scratch)
{
	(void)packet;
	(void)scratch;
	return result->verdict;
}

static uint32_t find_filter_from(struct program_record *r, uint32_t table, uint32_t first);

PERGOLA_INLINE_ uint32_t find_filter(struct program_record *r, uint32_t table)
{
	return find_filter_from(r, table, 0);
}

PERGOLA_INLINE_ uint32_t find_next_filter(struct program_record *r, uint32_t table)
{
	return find_filter_from(r, table, r->outcome.matched);
}

static uint32_t find_filter_from(struct program_record *r, uint32_t table, uint32_t first)
{
	for (uint32_t i = first; i < MAX_FILTERS && filters[i].used; i++) {
		if (filters[i].table == table && is_match(&filters[i], (const uint64_t *)r->packet.key)) {
			r->match.result = filters[i].result;
			return i + 1;
		}
	}
	return 0;
}

/* The frame lies behind PERGOLA_HEADROOM free bytes. Returns where it begins afterwards. */
static uint8_t *run(uint8_t *frame, uint32_t length, const struct program_input *in)
{
	struct pergola_packet *p = &record.packet;
	uint32_t loaded = length < PERGOLA_WINDOW ? length : PERGOLA_WINDOW, verdict;
	uint8_t *window = p->window + PERGOLA_HEADROOM;

	if (length < PERGOLA_ETHERNET_LENGTH) {
		record.outcome.verdict = PERGOLA_DROP;
		record.outcome.fault = PROGRAM_TOO_SHORT;
		return frame;
	}
	memcpy(window, frame, loaded);
	memset(window + loaded, 0, PERGOLA_WINDOW - loaded);
	p->length = length;
	p->loaded = loaded;
	begin_program(&record, in);
	verdict = run_stages(&record, in);
	conclude(&record, verdict, length);
	if (!leaves(verdict) || record.outcome.fault != PROGRAM_OK)
		return frame;
	frame += record.outcome.start;
	if (record.outcome.start < (int32_t)loaded)
		memcpy(frame, window + record.outcome.start, loaded - record.outcome.start);
	return frame;
}

/* Makes the frame the next copy of itself. False: there is none. */
static bool run_copy(uint8_t *frame, const struct program_input *in)
{
	const struct program_outcome *o = &record.outcome;
	uint32_t length = length_that_came(&record);
	int32_t start = o->start, loaded = length < PERGOLA_WINDOW ? length : PERGOLA_WINDOW;

	if (o->copies + 1 >= PERGOLA_COPIES || !find_copy(&record, in->first_table, in->tables))
		return false;
	format_copy(&record, o->copies + 1);
	if (start < loaded)
		memcpy(frame, record.packet.window + PERGOLA_HEADROOM + start, loaded - start);
	return true;
}

/* Reads at most so many bytes of the file that a variable of the environment names. 0: there is none; -1: an error. */
static long read_file(const char *variable, void *to, size_t most)
{
	const char *path = getenv(variable);
	FILE *f;
	long n;

	if (!path)
		return 0;
	f = fopen(path, "rb");
	if (!f) {
		perror(path);
		return -1;
	}
	n = fread(to, 1, most, f);
	if (getc(f) != EOF) {
		fprintf(stderr, "%s: more than %zu bytes\n", path, most);
		n = -1;
	}
	fclose(f);
	return n;
}

static int read_files(void)
{
	if (read_file("PERGOLA_FILTERS", filters, sizeof(filters) - sizeof(filters[0])) < 0)
		return 1;
	return &pergola_memory_area &&
	       read_file("PERGOLA_MEMORY", pergola_memory_area.start, pergola_memory_area.size) < 0;
}

static void write_outcome(const uint8_t *frame)
{
	fwrite(&record, sizeof(record), 1, stdout);
	if (leaves(record.outcome.verdict) && record.outcome.fault == PROGRAM_OK)
		fwrite(frame, 1, record.outcome.length, stdout);
}

/*
 * In: struct program_input, length (32 bits), frame. Out: struct program_record, frame, if one leaves; the same for each
 * copy, of which one more byte says whether it follows. Then counters.
 */
static int serve_stdin(void)
{
	static uint8_t space[PERGOLA_HEADROOM + MAX_FRAME];
	struct program_input in;
	uint32_t length;
	uint8_t *frame;

	while (fread(&in, sizeof(in), 1, stdin) == 1) {
		if (fread(&length, sizeof(length), 1, stdin) != 1 || length > MAX_FRAME ||
		    fread(space + PERGOLA_HEADROOM, 1, length, stdin) != length)
			return 1;
		frame = run(space + PERGOLA_HEADROOM, length, &in);
		write_outcome(frame);
		if (is_copied(&record.outcome))
			while (run_copy(frame, &in)) {
				fputc(1, stdout);
				write_outcome(frame);
			}
		fputc(0, stdout);
	}
	fwrite(pergola_counter_values, sizeof(pergola_counter_values), 1, stdout);
	return fflush(stdout) ? 1 : 0;
}

static int open_device(const char *name)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), one = 1;

	at.sll_ifindex = if_nametoindex(name);
	if (fd < 0 || !at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof(at)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one))) {
		perror(name);
		return -1;
	}
	return fd;
}

static void send_frame(const struct pollfd *devices, int n, const uint8_t *frame)
{
	const struct program_outcome *o = &record.outcome;

	if (o->fault != PROGRAM_OK)
		return;
	for (int i = 0; i < n; i++)
		if ((o->verdict == PERGOLA_SEND && o->output == (uint32_t)i + 1) ||
		    (o->verdict == PERGOLA_FLOOD && i < PERGOLA_INTERFACES && o->flood >> (i + 1) & 1))
			if (send(devices[i].fd, frame, o->length, 0) < 0 && errno != ENOBUFS && errno != EMSGSIZE)
				perror("send");
}

static void forward(const struct pollfd *devices, int n, int from, uint64_t interfaces)
{
	static uint8_t space[PERGOLA_HEADROOM + MAX_FRAME];
	struct program_input in = {
		.interface = from + 1, .interfaces = interfaces, .tables = PERGOLA_TABLES};
	ssize_t length = recv(devices[from].fd, space + PERGOLA_HEADROOM, MAX_FRAME, MSG_DONTWAIT);
	uint8_t *frame;

	if (length <= 0)
		return;
	frame = run(space + PERGOLA_HEADROOM, length, &in);
	send_frame(devices, n, frame);
	if (is_copied(&record.outcome))
		while (run_copy(frame, &in))
			send_frame(devices, n, frame);
}

static int serve_devices(int n, char **names)
{
	struct pollfd devices[PERGOLA_INTERFACES];
	uint64_t interfaces = 0;

	if (n > PERGOLA_INTERFACES) {
		fprintf(stderr, "at most %d interfaces\n", PERGOLA_INTERFACES);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		devices[i] = (struct pollfd){.fd = open_device(names[i]), .events = POLLIN};
		if (devices[i].fd < 0)
			return 1;
		interfaces |= 1ULL << (i + 1);
	}
	for (;;) {
		if (poll(devices, n, -1) < 0 && errno != EINTR) {
			perror("poll");
			return 1;
		}
		for (int i = 0; i < n; i++)
			if (devices[i].revents & POLLIN)
				forward(devices, n, i, interfaces);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s INTERFACE... | --stdin\n", argv[0]);
		return 2;
	}
	if (read_files())
		return 1;
	if (!strcmp(argv[1], "--stdin"))
		return serve_stdin();
	return serve_devices(argc - 1, argv + 1);
}
