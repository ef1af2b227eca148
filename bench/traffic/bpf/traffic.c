// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What is measured with: a program that makes frames, one that counts them, and one that does nothing but hand them on.
 *
 * generate runs by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: the kernel hands it pages in a ring, and whatever it does not
 * write is what the frame's last way left there. So it writes all headers each time.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_DESTINATIONS (1 << 20) /* traffic.MaxDestinations */
#define FLOWS 256		   /* by source port: as many as a trunk may carry, and not one */
#define PORT 7007		   /* traffic.Port */
#define ECHO_PORT (PORT + 1)	   /* of what a sink may send back */
#define TTL 64
#define MAX_DEVICES 64		   /* traffic.MaxDevices */
#define BURST 8			   /* traffic.burst: frames of a turn in a crowd */
#define CATCH_UP 20000000	   /* ns: frames of a crowd that are later are not made up for */
#define SLACK 50000		   /* ns: a generator that was late by more does not make up for it */
#define BODY_WORDS 5		   /* 40 bytes, traffic.MaxBody: a header of I3 with one identifier */
#define OUTER_WORDS 10		   /* 80 bytes, traffic.MaxOuter: Ethernet, IPv6, UDP, VXLAN need 70 */

struct headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

/* Of the generator, set before it is loaded. */
const volatile __u32 devices[MAX_DEVICES]; /* that the frames leave by, in turn */
const volatile __u32 devices_mask;	   /* their number, less one: a power of two */
const volatile __u8 to[ETH_ALEN];
const volatile __u8 from[ETH_ALEN];
const volatile __be32 source;
const volatile __u32 destinations_mask; /* their number, less one: a power of two */

const volatile __u32 keys;		/* of tunnels that frames take in turn; 0 or 1: the one in outer is that of all */
const volatile __u32 key_at;		/* offset of the key in outer */
const volatile __u32 key_first, key_step;
const volatile __u32 mix;		/* one frame in so many has one of the other keys in turn, the rest the first; 0: all in turn */

/* Of both: what comes before the frame where it is in a tunnel. */
const volatile __u64 outer[OUTER_WORDS];
const volatile __u32 outer_size;

/* What the datagram begins with. */
const volatile __u64 body[BODY_WORDS];
const volatile __u32 has_body;
const volatile __u32 mixed; /* frames leave by the first device, without a body, or by the second one, with it */
__u32 plain;		    /* of 256 frames that are mixed, so many leave by the first; the destinations go with them */

/* A crowd: the devices after the first get bursts in turn, so many ns apart, and the first one gets all the rest. */
const volatile __u32 crowd; /* how many they are */
__u64 apart;
__u64 turn_due;
__u64 turns; /* frames that were made for them */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DESTINATIONS);
	__type(key, __u32);
	__type(value, __be32);
} destinations SEC(".maps");

__u32 serial;
__u64 made;	/* frames that left */
__u32 interval; /* ns between frames, 0: as fast as they are taken. These may be set while it is loaded. */
__u64 make_until; /* CLOCK_MONOTONIC, ns: no frame is made after that; 0: it does not end */
__u64 due;

static long is_due(__u32 i __attribute__((unused)), void *until) { return bpf_ktime_get_ns() >= *(__u64 *)until; }

/* Waits until it is time for the next frame. */
static __always_inline void pace(void)
{
	__u64 now = bpf_ktime_get_ns(), until;

	if (due + SLACK < now)
		due = now;
	until = due;
	if (now < until)
		bpf_loop(1 << 20, is_due, &until, 0);
	due = until + interval;
}

/* Whose turn is it? Unlike pace(), it makes up for what was late: their rates hold whatever the first one gets. */
static __always_inline __u32 take_turn(void)
{
	if (turns % BURST == 0) {
		__u64 now = bpf_ktime_get_ns();

		if (now < turn_due)
			return 0;
		if (turn_due + CATCH_UP < now)
			turn_due = now;
		turn_due += apart;
	}
	return 1 + turns++ / BURST % crowd;
}

static __always_inline __u32 which_key(__u32 n)
{
	if (!mix)
		return n % keys;
	return n % mix ? 0 : 1 + n / mix % (keys - 1);
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~(sum + (sum >> 16));
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct headers *h = start + outer_size;
	__u32 n = serial++;

	__u32 other = mixed && (n * 167 & 255) >= plain; /* 167: so that they alternate */
	__u32 which = mixed ? other : n & destinations_mask;
	const __be32 *destination;
	__u16 length;
	__u32 sum;

	if (make_until && bpf_ktime_get_coarse_ns() >= make_until)
		return XDP_DROP;
	if (crowd)
		which = take_turn();
	destination = bpf_map_lookup_elem(&destinations, &which);
	if (!destination || (void *)(h + 1) > end)
		return XDP_ABORTED;
	if (interval && (!crowd || !which))
		pace();
	/* Whole words: what is too much is written over. The verifier knows outer_size. */
	for (__u32 i = 0; i < OUTER_WORDS && i * 8 < outer_size; i++)
		((__u64 *)start)[i] = outer[i];
	if (keys > 1)
		*(__be32 *)(start + key_at) = bpf_htonl(key_first + which_key(n) * key_step);
	length = (__u16)(end - (void *)&h->ip);
	for (int i = 0; i < ETH_ALEN; i++) {
		h->eth.h_dest[i] = to[i];
		h->eth.h_source[i] = from[i];
	}
	h->eth.h_proto = bpf_htons(ETH_P_IP);
	h->ip = (struct iphdr){
		.version = 4, .ihl = 5, .tot_len = bpf_htons(length), .ttl = TTL, .protocol = IPPROTO_UDP,
		.saddr = source, .daddr = *destination,
	};
	sum = bpf_htons(0x4500) + h->ip.tot_len + bpf_htons(TTL << 8 | IPPROTO_UDP);
	sum += (source & 0xffff) + (source >> 16) + (*destination & 0xffff) + (*destination >> 16);
	h->ip.check = fold(sum);
	h->udp = (struct udphdr){
		.source = bpf_htons(1024 + n % FLOWS), .dest = bpf_htons(PORT),
		.len = bpf_htons(length - sizeof(struct iphdr)),
	};
	if (has_body && (!mixed || other)) {
		if ((void *)(h + 1) + sizeof(body) > end)
			return XDP_ABORTED;
		for (int i = 0; i < BODY_WORDS; i++)
			((__u64 *)(h + 1))[i] = body[i];
	}
	made++;
	if (crowd)
		n = which;
	return bpf_redirect(devices[(mixed ? other : n) & devices_mask & (MAX_DEVICES - 1)], 0);
}

/* What a sink saw on one CPU. Times are bpf_ktime_get_coarse_ns(): a timer tick apart, and all but free. */
struct seen {
	__u64 frames;
	__u64 first, last;
	__u64 ttl; /* of the last frame */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} counts SEC(".maps");

__u64 count_from, count_until; /* what comes earlier or later is not counted; 0: all is */

/* Is it traffic? Everything else (ARP, neighbour discovery) passes a sink. */
static __always_inline int count(const void *start, const void *end)
{
	const struct headers *h = start + outer_size;
	__u32 zero = 0;
	__u64 now;
	struct seen *s;

	if ((void *)(h + 1) > end || h->eth.h_proto != bpf_htons(ETH_P_IP) || h->ip.ihl != 5 || h->ip.protocol != IPPROTO_UDP ||
	    h->udp.dest != bpf_htons(PORT))
		return 0;
	s = bpf_map_lookup_elem(&counts, &zero);
	if (!s)
		return 0;
	now = bpf_ktime_get_coarse_ns();
	if (count_until && (now < count_from || now >= count_until))
		return 1;
	s->last = now;
	if (!s->frames++)
		s->first = s->last;
	s->ttl = h->ip.ttl;
	return 1;
}

const volatile __u8 reflects; /* a sink sends datagrams to ECHO_PORT back where they came from */

static __always_inline int is_echo(const struct headers *h, const void *end)
{
	return (void *)(h + 1) <= end && h->eth.h_proto == bpf_htons(ETH_P_IP) && h->ip.ihl == 5 &&
	       h->ip.protocol == IPPROTO_UDP && h->udp.dest == bpf_htons(ECHO_PORT);
}

/* Neither checksum changes. */
static __always_inline void turn(struct headers *h)
{
	struct headers was = *h;

	__builtin_memcpy(h->eth.h_dest, was.eth.h_source, ETH_ALEN);
	__builtin_memcpy(h->eth.h_source, was.eth.h_dest, ETH_ALEN);
	h->ip.saddr = was.ip.daddr;
	h->ip.daddr = was.ip.saddr;
	h->udp.source = was.udp.dest;
	h->udp.dest = was.udp.source;
}

/* At a driver, for what comes from a NIC. */
SEC("xdp")
int sink_xdp(struct xdp_md *ctx)
{
	struct headers *h = (void *)(long)ctx->data;

	if (reflects && is_echo(h, (void *)(long)ctx->data_end)) {
		turn(h);
		return XDP_TX;
	}
	return count((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

/* At tc ingress, for what comes from a socket: there all frames pass, also those that came past the driver (bpf_redirect_peer). */
SEC("tc")
int sink_tc(struct __sk_buff *skb)
{
	/* What came out of a ring of AF_PACKET lies in pages. */
	if (skb->data_end - skb->data < sizeof(struct headers) && bpf_skb_pull_data(skb, sizeof(struct headers)))
		return TC_ACT_OK;
	if (reflects && is_echo((void *)(long)skb->data, (void *)(long)skb->data_end)) {
		turn((void *)(long)skb->data);
		return bpf_redirect(skb->ifindex, 0);
	}
	return count((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* Of a relay: the devices that it joins, set before it is loaded. */
const volatile __u32 one, other;

static __always_inline __u32 opposite(__u32 device) { return device == one ? other : one; }

/* At a driver. */
SEC("xdp")
int relay_xdp(struct xdp_md *ctx)
{
	return bpf_redirect(opposite(ctx->ingress_ifindex), 0);
}

/* At tc ingress. */
SEC("tc")
int relay_tc(struct __sk_buff *skb)
{
	bpf_skb_change_type(skb, PACKET_HOST); /* before Linux 6.15 bpf_redirect_peer() leaves it as it is: another station's */
	return bpf_redirect_peer(opposite(skb->ifindex), 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
