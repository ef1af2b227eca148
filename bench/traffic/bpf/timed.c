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
#define MAX_ARRIVALS (1 << 16) /* traffic.maxTimed */

struct stamp {
	__u64 sent;   /* CLOCK_MONOTONIC, ns */
	__u32 number; /* in its window */
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
const volatile __be32 source, destination;
const volatile __be32 label; /* the label stack entry of the flow's frames; 0: they have none */

/* These are set for each window. */
__u64 send_until;  /* CLOCK_MONOTONIC, ns */
__u64 flow_apart;  /* ns between frames */
__u64 cross_apart; /* ns between frames; 0: there are none */
__u32 window;
__u64 flow_due, cross_due;
__u64 flow_made, cross_made;

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

__u64 flow_arrived, cross_arrived;

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~(sum + (sum >> 16));
}

static __always_inline int write_packet(struct packet *p, void *end, __u16 port, __u64 now, __u32 number)
{
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
		.source = bpf_htons(port), .dest = bpf_htons(port), .len = bpf_htons(length - sizeof(p->ip)),
	};
	p->stamp = (struct stamp){.sent = now, .number = number, .window = window};
	return bpf_redirect(device, 0);
}

static __always_inline int write_frame(struct xdp_md *ctx, __u16 port, __be32 entry, __u64 now, __u32 number)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = start;
	void *above = eth + 1;

	if (above + sizeof(entry) + sizeof(struct packet) > end)
		return XDP_ABORTED;
	for (int i = 0; i < ETH_ALEN; i++) {
		eth->h_dest[i] = to[i];
		eth->h_source[i] = from[i];
	}
	if (entry) {
		eth->h_proto = bpf_htons(ETH_P_MPLS_UC);
		*(__be32 *)above = entry;
		return write_packet(above + sizeof(entry), end, port, now, number);
	}
	eth->h_proto = bpf_htons(ETH_P_IP);
	return write_packet(above, end, port, now, number);
}

SEC("xdp")
int make_timed(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	if (now >= send_until)
		return XDP_DROP;
	if (now >= flow_due) { /* a frame that is late delays those behind it: they never come as a burst */
		flow_due = (flow_due + flow_apart < now ? now : flow_due) + flow_apart;
		return write_frame(ctx, FLOW_PORT, label, now, flow_made++);
	}
	if (!cross_apart || now < cross_due)
		return XDP_DROP;
	cross_due = (cross_due + SLACK < now ? now : cross_due) + cross_apart;
	cross_made++;
	return write_frame(ctx, CROSS_PORT, 0, now, 0);
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
