/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ring: a router in user space that takes frames out of one device's ring and puts them into another's: AF_PACKET with
 * memory that is shared with the kernel (TPACKET_V3 for what comes, TPACKET_V2 for what goes).
 *
 *	ring CORE SECONDS IN OUT FROM TO
 *
 * IPv4 frames that come in at IN leave by OUT with these Ethernet addresses and a TTL less one. It runs on one core, for
 * so many seconds at most.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

#define BLOCK (1 << 17)
#define BLOCKS 16
#define SLOT 2048
#define SLOTS 1024
#define FLUSH 64 /* frames that are sent by one system call */

struct sender {
	int fd;
	unsigned char *ring;
	unsigned next, pending;
	unsigned char addresses[12]; /* to, from */
};

static int open_socket(int version)
{
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		fail("open a packet socket");
	return fd;
}

/* Begins to take frames: rings are there. */
static void bind_to(int fd, const char *device, int protocol)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons((uint16_t)protocol)};

	at.sll_ifindex = (int)if_nametoindex(device);
	if (!at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail(device);
}

static void *map(int fd, size_t size)
{
	void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (ring == MAP_FAILED)
		fail("map a ring");
	return ring;
}

static struct sender open_sender(const char *device)
{
	struct tpacket_req req = {
		.tp_block_size = BLOCK, .tp_block_nr = SLOTS * SLOT / BLOCK, .tp_frame_size = SLOT, .tp_frame_nr = SLOTS,
	};
	struct sender s = {.fd = open_socket(TPACKET_V2)};
	int on = 1;

	if (setsockopt(s.fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) ||
	    setsockopt(s.fd, SOL_PACKET, PACKET_LOSS, &on, sizeof(on)) ||
	    setsockopt(s.fd, SOL_PACKET, PACKET_TX_RING, &req, sizeof(req)))
		fail("make a ring to send by");
	s.ring = map(s.fd, SLOTS * SLOT);
	bind_to(s.fd, device, 0);
	return s;
}

static void flush(struct sender *s)
{
	if (s->pending)
		send(s->fd, NULL, 0, MSG_DONTWAIT);
	s->pending = 0;
}

static void forward(struct sender *s, const unsigned char *frame, unsigned length)
{
	struct tpacket2_hdr *slot = (void *)(s->ring + (size_t)s->next * SLOT);
	unsigned char *to = (unsigned char *)slot + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll);
	unsigned sum;

	if (length < 34 || length > SLOT - TPACKET2_HDRLEN || frame[12] != 8 || frame[13] || frame[22] <= 1)
		return;
	if (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE) {
		flush(s);
		if (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
			return; /* it is lost */
	}
	memcpy(to, frame, length);
	memcpy(to, s->addresses, sizeof(s->addresses));
	to[22]--;
	sum = (unsigned)(to[24] << 8 | to[25]) + 0x100; /* RFC 1624 */
	sum = (sum & 0xffff) + (sum >> 16);
	to[24] = (unsigned char)(sum >> 8);
	to[25] = (unsigned char)sum;
	slot->tp_len = length;
	__atomic_store_n(&slot->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
	s->next = (s->next + 1) % SLOTS;
	if (++s->pending == FLUSH)
		flush(s);
}

static void forward_block(struct sender *s, struct tpacket_block_desc *block)
{
	struct tpacket3_hdr *p = (void *)((char *)block + block->hdr.bh1.offset_to_first_pkt);

	for (unsigned i = 0; i < block->hdr.bh1.num_pkts; i++) {
		forward(s, (unsigned char *)p + p->tp_mac, p->tp_snaplen);
		p = (void *)((char *)p + p->tp_next_offset);
	}
	flush(s);
}

int main(int argc, char **argv)
{
	struct tpacket_req3 req = {
		.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = SLOT, .tp_frame_nr = BLOCK / SLOT * BLOCKS,
		.tp_retire_blk_tov = 1, /* ms */
	};
	struct pollfd polled = {.events = POLLIN};
	struct sender s;
	unsigned char *ring;

	if (argc != 7) {
		fprintf(stderr, "usage: ring CORE SECONDS IN OUT FROM TO\n");
		return 2;
	}
	begin(argv[1], argv[2]);
	s = open_sender(argv[4]);
	read_mac(s.addresses, argv[6]);
	read_mac(s.addresses + 6, argv[5]);
	polled.fd = open_socket(TPACKET_V3);
	if (setsockopt(polled.fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)))
		fail("make a ring to receive by");
	ring = map(polled.fd, (size_t)BLOCK * BLOCKS);
	bind_to(polled.fd, argv[3], ETH_P_IP);
	say_ready();
	for (unsigned n = 0;; n = (n + 1) % BLOCKS) {
		struct tpacket_block_desc *block = (void *)(ring + (size_t)n * BLOCK);

		while (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
			if (poll(&polled, 1, -1) < 0 || polled.revents & POLLERR)
				fail("wait for frames");
		forward_block(&s, block);
		__atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
}
