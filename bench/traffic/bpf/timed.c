// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A flow whose frames say when they were made, cross traffic beside it, and the sink of both.
 *
 * make_timed runs as generate in traffic.c does: it writes all headers each time. It never waits: a run that comes
 * before any frame is due makes none, so no frame waits in a batch for one that is made later.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FLOW_PORT 7009	 /* UDP ports: of the flow, */
#define CROSS_PORT 7010	 /* and of the cross traffic */
#define TTL 64
#define SLACK 50000	 /* ns: a generator that was late by more does not make up for it */
#define RESERVED_CLASS 5 /* datapath.ReservedClass */
#define MAX_ARRIVALS (1 << 16) /* traffic.maxTimed */

struct stamp {
	__u64 sent;   /* CLOCK_MONOTONIC, ns */
	__u32 number; /* in its window; of cross traffic: whether it has the class of what has a reservation */
	__u32 window;
};

struct packet {
	struct iphdr ip;
	struct udphdr udp;
	struct stamp stamp;
} __attribute__((packed));

/* Of the generator, set before it is loaded. */
const volatile __u32 device;
const volatile __u8 to[ETH_ALEN];
const volatile __u8 from[ETH_ALEN];
const volatile __be32 source, destination; /* that of the flow's frames */
const volatile __be32 label; /* the label stack entry of the flow's frames; 0: they have none */

/* These are set for each window. */
__u64 send_until;  /* CLOCK_MONOTONIC, ns */
__u64 flow_apart;  /* ns between frames */
__u64 cross_apart; /* ns between frames; 0: there are none */
__u32 window;
__u64 flow_due, cross_due;
__u64 flow_made, cross_made, reserved_made; /* reserved_made: of the cross traffic, with RESERVED_CLASS */

/* Of the cross traffic. */
__u32 cross_device;
__be32 cross_destination;
__u32 cross_label;  /* that of the first of */
__u32 cross_labels; /* so many LSPs, which frames go by in turn; 0: they have no labels */
__u32 cross_times;  /* one frame in so many of each LSP has RESERVED_CLASS, the others have 0; 0: none has */

/* Of the sink: when each frame of the flow arrived. */
struct arrival {
	__u64 sent, received; /* CLOCK_MONOTONIC, ns; 0: it did not */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ARRIVALS);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

__u64 flow_arrived, cross_arrived, reserved_arrived;

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~(sum + (sum >> 16));
}

/* What a frame is, beside its headers. */
struct made {
	__u32 device;
	__be32 destination;
	__be32 entry; /* the label stack entry; 0: none */
	__u16 port;
	__u32 number;
};

static __always_inline int write_packet(struct packet *p, void *end, const struct made *m, __u64 now)
{
	__be32 destination = m->destination;
	__u16 length = end - (void *)p;
	__u32 sum;

	p->ip = (struct iphdr){
		.version = 4, .ihl = 5, .tot_len = bpf_htons(length), .ttl = TTL, .protocol = IPPROTO_UDP,
		.saddr = source, .daddr = destination,
	};
	sum = bpf_htons(0x4500) + p->ip.tot_len + bpf_htons(TTL << 8 | IPPROTO_UDP);
	sum += (source & 0xffff) + (source >> 16) + (destination & 0xffff) + (destination >> 16);
	p->ip.check = fold(sum);
	p->udp = (struct udphdr){
		.source = bpf_htons(m->port), .dest = bpf_htons(m->port), .len = bpf_htons(length - sizeof(p->ip)),
	};
	p->stamp = (struct stamp){.sent = now, .number = m->number, .window = window};
	return bpf_redirect(m->device, 0);
}

static __always_inline int write_frame(struct xdp_md *ctx, const struct made *m, __u64 now)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = start;
	void *above = eth + 1;

	if (above + sizeof(m->entry) + sizeof(struct packet) > end)
		return XDP_ABORTED;
	for (int i = 0; i < ETH_ALEN; i++) {
		eth->h_dest[i] = to[i];
		eth->h_source[i] = from[i];
	}
	if (m->entry) {
		eth->h_proto = bpf_htons(ETH_P_MPLS_UC);
		*(__be32 *)above = m->entry;
		return write_packet(above + sizeof(m->entry), end, m, now);
	}
	eth->h_proto = bpf_htons(ETH_P_IP);
	return write_packet(above, end, m, now);
}

/* The next frame of the cross traffic. Of each LSP comes one frame with the class, and then those without. */
static __always_inline void begin_cross(struct made *m)
{
	__u32 n = (__u32)cross_made++, times = cross_times, labels = cross_labels;

	m->device = cross_device;
	m->destination = cross_destination;
	m->port = CROSS_PORT;
	m->entry = 0;
	m->number = 0;
	if (!labels)
		return;
	if (times && n % times == 0) {
		m->number = 1;
		reserved_made++;
	}
	n = cross_label + n / (times ? times : 1) % labels;
	m->entry = bpf_htonl(n << 12 | (m->number ? RESERVED_CLASS : 0) << 9 | 1 << 8 | TTL);
}

SEC("xdp")
int make_timed(struct xdp_md *ctx)
{
	struct made m = {.device = device, .destination = destination, .entry = label, .port = FLOW_PORT};
	__u64 now = bpf_ktime_get_ns();

	if (now >= send_until)
		return XDP_DROP;
	if (now >= flow_due) { /* a frame that is late delays those behind it: they never come as a burst */
		flow_due = (flow_due + flow_apart < now ? now : flow_due) + flow_apart;
		m.number = flow_made++;
		return write_frame(ctx, &m, now);
	}
	if (!cross_apart || now < cross_due)
		return XDP_DROP;
	cross_due = (cross_due + SLACK < now ? now : cross_due) + cross_apart;
	begin_cross(&m);
	return write_frame(ctx, &m, now);
}

SEC("xdp")
int sink_timed(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct ethhdr *eth = start;
	const struct packet *p;
	struct arrival *a;
	__u32 number;

	if ((void *)(eth + 1) + sizeof(label) + sizeof(*p) > end)
		return XDP_PASS;
	p = (void *)(eth + 1);
	if (eth->h_proto == bpf_htons(ETH_P_MPLS_UC))
		p = (void *)(eth + 1) + sizeof(label);
	else if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	if (p->ip.protocol != IPPROTO_UDP || p->stamp.window != window)
		return XDP_PASS;
	if (p->udp.dest == bpf_htons(CROSS_PORT)) {
		__sync_fetch_and_add(&cross_arrived, 1);
		if (p->stamp.number)
			__sync_fetch_and_add(&reserved_arrived, 1);
		return XDP_DROP;
	}
	if (p->udp.dest != bpf_htons(FLOW_PORT))
		return XDP_PASS;
	number = p->stamp.number;
	a = bpf_map_lookup_elem(&arrivals, &number);
	if (a) {
		a->sent = p->stamp.sent;
		a->received = bpf_ktime_get_ns();
		__sync_fetch_and_add(&flow_arrived, 1);
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
