/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * udp: forwards datagrams, as a router in user space with tunnels over UDP does: what a slice of PlanetLab would run.
 *
 *	udp CORE SECONDS ADDRESS:PORT=ADDRESS:PORT...
 *
 * What comes to the first address and port goes on to the second, from the same socket. What comes from there goes back to where
 * the last other datagram came from. It takes and gives up to 64 datagrams by one system call, on one core, for so many
 * seconds at most.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

#define BATCH 64
#define LONGEST 2048
#define MOST_PORTS 8

struct port {
	int fd;
	struct sockaddr_in next, last;
};

static struct mmsghdr messages[BATCH];
static struct iovec vectors[BATCH];
static struct sockaddr_in names[BATCH];
static char data[BATCH][LONGEST];

/* Reads ADDRESS:PORT. */
static struct sockaddr_in read_address(const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	char address[INET_ADDRSTRLEN];
	unsigned short number;

	if (sscanf(text, "%15[0-9.]:%hu", address, &number) != 2 || inet_pton(AF_INET, address, &a.sin_addr) != 1) {
		fprintf(stderr, "udp: %s is not ADDRESS:PORT\n", text);
		exit(2);
	}
	a.sin_port = htons(number);
	return a;
}

static struct port open_port(const char *text)
{
	const char *equals = strchr(text, '=');
	struct sockaddr_in own = read_address(text);
	struct port p = {.next = read_address(equals ? equals + 1 : "")};

	p.fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (p.fd < 0 || bind(p.fd, (struct sockaddr *)&own, sizeof(own)))
		fail("open a port");
	return p;
}

static int same(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
	return a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port;
}

static void forward(struct port *p, int flags)
{
	int n;

	for (int i = 0; i < BATCH; i++) {
		vectors[i].iov_len = LONGEST;
		messages[i].msg_hdr.msg_namelen = sizeof(names[i]);
	}
	n = recvmmsg(p->fd, messages, BATCH, flags, NULL);
	for (int i = 0; i < n; i++) {
		vectors[i].iov_len = messages[i].msg_len;
		if (same(&names[i], &p->next)) {
			names[i] = p->last;
			continue;
		}
		p->last = names[i];
		names[i] = p->next;
	}
	/* What cannot be sent is lost, as in any router. */
	for (int sent = 0, done; sent < n; sent += done > 0 ? done : 1)
		done = sendmmsg(p->fd, messages + sent, (unsigned)(n - sent), 0);
}

int main(int argc, char **argv)
{
	struct port ports[MOST_PORTS];
	struct pollfd polled[MOST_PORTS];
	int count = argc - 3;

	if (count < 1 || count > MOST_PORTS) {
		fprintf(stderr, "usage: udp CORE SECONDS ADDRESS:PORT=ADDRESS:PORT...\n");
		return 2;
	}
	begin(argv[1], argv[2]);
	for (int i = 0; i < BATCH; i++) {
		vectors[i].iov_base = data[i];
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
		messages[i].msg_hdr.msg_name = &names[i];
	}
	for (int i = 0; i < count; i++) {
		ports[i] = open_port(argv[3 + i]);
		polled[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
	}
	say_ready();
	for (;;) {
		if (count == 1) {
			forward(&ports[0], MSG_WAITFORONE);
			continue;
		}
		if (poll(polled, (nfds_t)count, -1) < 0)
			fail("wait for datagrams");
		for (int i = 0; i < count; i++)
			if (polled[i].revents & POLLIN)
				forward(&ports[i], MSG_DONTWAIT);
	}
}
