/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * router: a router in user space between two devices, by sockets of AF_PACKET. Unlike ring, it hands a frame on as soon
 * as it comes, and goes both ways.
 *
 *	router CORE SECONDS LEFT RIGHT LEFT-FROM LEFT-TO RIGHT-FROM RIGHT-TO
 *
 * IPv4 frames that come in at LEFT leave by RIGHT from and to the Ethernet addresses of that side, with a TTL less one,
 * and the other way round. It looks nothing up, and takes and gives up to 64 frames by one system call. It runs on one
 * core, for so many seconds at most.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

#define BATCH 64
#define LONGEST 2048

struct side {
	int fd;
	unsigned char addresses[12]; /* to, from: of what leaves */
};

static struct mmsghdr messages[BATCH];
static struct iovec vectors[BATCH];
static unsigned char frames[BATCH][LONGEST];

static struct side open_side(const char *device, const char *from, const char *to)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	struct side s = {.fd = socket(AF_PACKET, SOCK_RAW, 0)};
	int on = 1, room = 1 << 22;

	read_mac(s.addresses, to);
	read_mac(s.addresses + 6, from);
	at.sll_ifindex = (int)if_nametoindex(device);
	if (s.fd < 0 || setsockopt(s.fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    setsockopt(s.fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) ||
	    setsockopt(s.fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) || !at.sll_ifindex ||
	    bind(s.fd, (struct sockaddr *)&at, sizeof(at)))
		fail(device);
	return s;
}

/* Is the frame one to be forwarded? Then it is made ready. */
static int change(unsigned char *frame, unsigned length, const struct side *to)
{
	unsigned sum;

	if (length < 34 || length > LONGEST || frame[12] != 8 || frame[13] || frame[22] <= 1)
		return 0;
	memcpy(frame, to->addresses, sizeof(to->addresses));
	frame[22]--;
	sum = (unsigned)(frame[24] << 8 | frame[25]) + 0x100; /* RFC 1624 */
	sum = (sum & 0xffff) + (sum >> 16);
	frame[24] = (unsigned char)(sum >> 8);
	frame[25] = (unsigned char)sum;
	return 1;
}

static void forward(const struct side *from, const struct side *to)
{
	int n, ready = 0;

	for (int i = 0; i < BATCH; i++)
		vectors[i] = (struct iovec){.iov_base = frames[i], .iov_len = LONGEST};
	n = recvmmsg(from->fd, messages, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++)
		if (change(frames[i], messages[i].msg_len, to))
			vectors[ready++] = (struct iovec){.iov_base = frames[i], .iov_len = messages[i].msg_len};
	/* What cannot be sent is lost, as in any router. */
	for (int sent = 0, done; sent < ready; sent += done > 0 ? done : 1)
		done = sendmmsg(to->fd, messages + sent, (unsigned)(ready - sent), MSG_DONTWAIT);
}

int main(int argc, char **argv)
{
	struct pollfd polled[2];
	struct side sides[2];

	if (argc != 9) {
		fprintf(stderr, "usage: router CORE SECONDS LEFT RIGHT LEFT-FROM LEFT-TO RIGHT-FROM RIGHT-TO\n");
		return 2;
	}
	begin(argv[1], argv[2]);
	for (int i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	for (int i = 0; i < 2; i++) {
		sides[i] = open_side(argv[3 + i], argv[5 + 2 * i], argv[6 + 2 * i]);
		polled[i] = (struct pollfd){.fd = sides[i].fd, .events = POLLIN};
	}
	say_ready();
	for (;;) {
		if (poll(polled, 2, -1) < 0)
			fail("wait for frames");
		for (int i = 0; i < 2; i++)
			if (polled[i].revents & POLLIN)
				forward(&sides[i], &sides[1 - i]);
	}
}
