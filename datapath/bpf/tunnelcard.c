// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * underlay_linecard: XDP at a network card of the machine, the line card of tunnels.
 *
 * It does what underlay_ingress, uplink_ingress and underlay_egress do together, without an sk_buff and without going
 * through the substrate's namespace: out of the tunnel, past all nodes on the way, and to a device that takes frames
 * from XDP programs (map devices), or into another tunnel and out by this card or another one (map nics). It decides
 * before it changes anything; where it is not certain that all of it can be done, the packet goes on to
 * underlay_ingress as it came, and is counted there. Only segments of TCP out of VXLAN are sent elsewhere: the proxy
 * port's device makes super-frames of them (gather).
 *
 * underlay_linecard_below: the same for packets of best effort, and for those that packet programs are to see, where
 * early demultiplexing is on (early.h). The latter go on to underlay_ingress, as the kernel calls programs of XDP from
 * those of the same kind alone.
 *
 * walk_on_xdp: goes on with a frame that a node's packet program gives back in XDP (node.h), wherever it came in.
 */
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#include "early.h"
#include "link.h"
#include "outer.h"
#include "outer_route.h"
#include "sent.h"
#include "tunnel.h"
#include "udp.h"
#include "xdp.h"

/*
 * Network cards that take frames from the line card of another one, by ifindex in the machine's namespace; IN_PARTS
 * beside it: also frames that lie in several buffers. Elsewhere they would be lost. BACK beside it: the card's own
 * line card sends by it in this way, too, and not by XDP_TX, what lies in one buffer. User space asks the drivers; a
 * card that is gone is gone from here, too.
 */
#define IN_PARTS (1u << 31)
#define BACK (1u << 30)

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 128);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} nics SEC(".maps");

/* Returns false where the packet does not begin with all of it. */
static __always_inline bool copy_outer(struct outer_header *h, const void *data, const void *end)
{
	const struct ethhdr *eth = data;
	const struct iphdr *ip4 = (const void *)(eth + 1);
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);
	const void *above = ip6 + 1;

	if (above > end)
		return false;
	__builtin_memcpy(&h->eth, eth, sizeof(*eth));
	__builtin_memcpy(&h->ip6, ip6, sizeof(*ip6));
	if (is_outer_ip4(h))
		above = ip4 + 1;
	if (above + sizeof(h->vxlan) > end)
		return false;
	__builtin_memcpy(&h->vxlan, above, sizeof(h->vxlan));
	return true;
}

/* Whose is it, and what is inside? Returns false where not all is in order. */
__noinline int open_packet(struct xdp_md *ctx, struct frame *f)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length = bpf_xdp_get_buff_len(ctx);
	struct outer_header h = {};
	struct outer o = {};

	if (!f || !copy_outer(&h, data, end) || h.eth.h_dest[0] & 1 || find_kind(&h) == TUNNEL_NONE)
		return false;
	if (read_outer(&h, length, 0, &o) != CONTINUE || o.total != length || o.summed)
		return false;
	f->from = f->entered = find_tunnel(&o);
	f->begin = o.length;
	f->length = f->longest = o.total - o.length;
	f->ecn = o.ecn;
	f->split = end - data != length;
	if (with_met)
		f->met = met_before(f->from, &o);
	return f->from != 0;
}

/* The inner packet's header is in the copy: as the walk has left it, or as it came. */
static __always_inline bool require_inner_header(struct xdp_md *ctx, struct frame *f)
{
	return (f->copied && f->hops) || read_header(ctx, f);
}

/* Would it come out of the tunnel as it is? */
__noinline int keeps_ecn(struct xdp_md *ctx, struct frame *f)
{
	__u8 inner;

	if (!f)
		return false;
	if (f->ecn == NOT_ECT || f->ecn == ECT_0)
		return true;
	if (!require_inner_header(ctx, f))
		return false;
	inner = traffic_class(&f->header, f->length) & 3;
	return decapsulate_ecn(inner, f->ecn) == inner;
}

/* Writes ECN, and what becomes of the checksum (RFC 1624). */
static __always_inline void write_ecn(struct header *h, __u8 ecn)
{
	__be16 *word = (void *)&h->ip4;
	__u32 check;

	if (!is_ip4(h)) {
		h->ip6.flow_lbl[0] = (h->ip6.flow_lbl[0] & ~0x30) | (ecn & 3) << 4;
		return;
	}
	check = (__u16)~h->ip4.check + (__u16)~*word;
	h->ip4.tos = (h->ip4.tos & ~3) | (ecn & 3);
	check += *word;
	check = (check & 0xffff) + (check >> 16);
	check = (check & 0xffff) + (check >> 16);
	h->ip4.check = ~check;
}

/*
 * A segment of TCP enters its link by the device of the tunnel's proxy port, whose veth pair makes super-frames of
 * what comes so (GRO). The kernel does that at the network card with what is in EGRE, but not with VXLAN, unless it
 * has a device for it: without, each segment would be a frame of its own all the way up to the node's TCP. Of a
 * tunnel's segments, all that lie in one buffer are sent this way, or none: those stay in order. A device forgets how
 * many packet programs a frame has met: of a tunnel that counts, only what goes to a node's kernel is sent this way.
 */
__noinline int gather(struct xdp_md *ctx, struct frame *f)
{
	const __u32 vlan_tag = 4;
	const struct port *own;
	__u8 inner, ecn;
	__u32 from;

	if (!f || f->split) /* Linux before 6.3 loses what is redirected in several buffers */
		return XDP_PASS;
	from = f->entered; /* on the stack, where Linux 6.1 wants keys to be */
	f->edit = (struct edit){.cut = f->begin};
	if (to_device(from) == XDP_PASS)
		return XDP_PASS;
	own = find_port(from);
	if (with_met && f->met && own && (own->mode != MODE_PEER || find_leg(own->peer)))
		return XDP_PASS;
	if (!own || f->length > own->mtu + ETH_HLEN + vlan_tag) /* a veth pair would drop it, and count it elsewhere */
		return XDP_PASS;
	if (f->length < ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) || !read_header(ctx, f))
		return XDP_PASS;
	if (!is_ip(&f->header) || protocol(&f->header) != IPPROTO_TCP)
		return XDP_PASS;
	inner = traffic_class(&f->header, f->length) & 3;
	ecn = decapsulate_ecn(inner, f->ecn);
	if (ecn == ECN_DROP)
		return XDP_PASS;
	if (ecn != inner) {
		write_ecn(&f->header, ecn);
		f->edit.takes = HOP_HEAD;
		f->edit.puts = HOP_HEAD;
	}
	return XDP_REDIRECT;
}

/* How it leaves by a network card, if it can. */
static __always_inline int to_card(const struct xdp_md *ctx, const struct frame *f, __u32 nic)
{
	/* What lies in several buffers, Linux before 6.3 sends back, but loses where it is redirected. */
	if (nic == ctx->ingress_ifindex && with_early && is_below()) /* a thread below cannot send back */
		return f->split ? XDP_PASS : bpf_redirect_map(&nics, nic, XDP_PASS);
	if (nic == ctx->ingress_ifindex)
		return f->split ? XDP_TX : bpf_redirect_map(&nics, nic | BACK, XDP_TX);
	return bpf_redirect_map(&nics, f->split ? nic | IN_PARTS : nic, XDP_PASS);
}

/* Into the tunnel that begins where the frame has come to, and out by a card: returns how, and completes the edit. */
__noinline int relay(struct xdp_md *ctx, struct frame *f)
{
	const struct uplink *u = find_uplink();
	const struct outer_route *r;
	const struct encapsulation *e;
	struct wrapping *w;
	__u32 n, at;
	int verdict;

	if (!f || !u || !u->outside || waits_at_card(u))
		return XDP_PASS;
	at = f->at; /* on the stack, where Linux 6.1 wants keys to be */
	e = bpf_map_lookup_elem(&encapsulations, &at);
	if (!e || e->kind == TUNNEL_NONE || (with_storm_control && e->storm) || !require_inner_header(ctx, f))
		return XDP_PASS;
	w = &f->outer;
	n = write_outer(f, at, f->length);
	r = find_card_route(ctx, w->bytes, e, at, u);
	if (!r || n + f->length > r->mtu)
		return XDP_PASS;
	verdict = to_card(ctx, f, r->nic);
	if (verdict == XDP_PASS)
		return XDP_PASS;
	__builtin_memcpy(w->eth.h_dest, r->to, ETH_ALEN);
	__builtin_memcpy(w->eth.h_source, r->from, ETH_ALEN);
	f->edit.outer = sizeof(w->eth) + n;
	return verdict;
}

/*
 * A packet for a packet program: as open_datagram() and to_program() in underlay.c. Returns XDP_PASS where it is none, or
 * where tc is to find out what is wrong with it; nothing has been changed then. From the first change on there is no
 * way back.
 */
__noinline int call_by_datagram(struct xdp_md *ctx, struct frame *f)
{
	const __u8 zeros[ETH_HLEN] = {};
	const struct udp_owner *o;
	struct datagram d = {};
	__u32 length, total;

	if (!with_udp || !f)
		return XDP_PASS;
	length = bpf_xdp_get_buff_len(ctx);
	if (bpf_xdp_load_bytes(ctx, 0, &d.eth, DATAGRAM_HEAD) || d.eth.h_dest[0] & 1)
		return XDP_PASS;
	o = find_udp_owner(&d);
	if (!o)
		return XDP_PASS;
	if (with_early && programs_wait()) {
		f->why = TO_PROGRAM;
		return XDP_PASS;
	}
	if (!is_datagram(&d, length) || !can_hand_over())
		return XDP_PASS;
	/* Linux before 6.3 loses what is redirected in several buffers. */
	if ((long)ctx->data_end - (long)ctx->data != length)
		return XDP_PASS;
	total = bpf_ntohs(d.ip.tot_len) + ETH_HLEN;
	if (length > total && bpf_xdp_adjust_tail(ctx, (int)(total - length))) /* padding */
		return XDP_PASS;
	if (bpf_xdp_adjust_head(ctx, (int)UDP_HEADERS))
		return XDP_PASS;
	if (bpf_xdp_store_bytes(ctx, 0, (void *)zeros, sizeof(zeros)))
		return XDP_ABORTED;
	note_sender(f, o, &d);
	f->queue = 0;
	f->met = 0;
	f->by_card = 1;
	return XDP_REDIRECT;
}

/* Does not come back, if the node has a program. */
static __always_inline int call_by_port(struct xdp_md *ctx, struct frame *f)
{
	bpf_tail_call(ctx, &node_programs_xdp, f->router);
	f->outer_port = 0;
	count_packet_drop(REASON_NO_PROGRAM);
	return XDP_DROP;
}

/* below: this is the thread of best effort (early.h), from which no packet program can be called. */
static __always_inline int carry_packet(struct xdp_md *ctx, struct frame *f, const bool below)
{
	bool through, called, relayed;
	int verdict = XDP_PASS;

	clear_frame(f, true);
	if (!open_packet(ctx, f)) {
		if (!with_udp || below)
			return XDP_PASS;
		verdict = call_by_datagram(ctx, f);
		return verdict == XDP_REDIRECT ? call_by_port(ctx, f) : verdict;
	}
	if (cross(f) != CONTINUE)
		return XDP_PASS;
	through = f->mode == MODE_PEER && walk_through(ctx, f);
	called = !below && f->mode == MODE_PEER && !through && !(with_early && programs_wait()) &&
		 calls_node(ctx, f);
	relayed = through && f->external && begins_tunnel(f->at);
	f->edit.cut = f->begin;
	if ((through || called) && keeps_ecn(ctx, f))
		verdict = leave_by(ctx, f, called ? XDP_REDIRECT : relayed ? relay(ctx, f) : to_device(f->at));
	if (verdict == XDP_PASS) {
		/* A queue and a policer take a super-frame for one frame. */
		if (called || relayed || f->mode == MODE_QUEUE || (with_policers && f->policed) ||
		    (with_early && !below && f->why == TO_PROGRAM && programs_wait()))
			return XDP_PASS;
		verdict = leave_by(ctx, f, gather(ctx, f));
		if (verdict == XDP_PASS)
			return XDP_PASS;
		count_received(f->begin + f->length, false); /* the device counts what emerges */
	} else {
		count_received(f->begin + f->length, true);
		count_emerged(f->entered, f->length);
		account(f);
	}
	if (verdict == XDP_ABORTED) { /* the frame has become shorter than it was, between two looks */
		count_drop(f->from, REASON_NO_MEMORY);
	} else if (relayed && verdict != XDP_DROP) {
		count_sent(f->edit.outer + f->length);
		count_handed(f->at, f->length);
	} else if (!below && called && verdict == XDP_REDIRECT) {
		if (!with_met)
			f->met = 0;
		f->by_card = 1;
		return call_node(ctx, f);
	}
	return verdict;
}

/* The packet, which is as it came, waits for the thread below, or is dropped. */
__noinline int put_packet_off(struct frame *f, const struct early *rules)
{
	int verdict;

	if (!f || !rules)
		return XDP_PASS;
	verdict = defer(f, rules, &below_nics);
	if (verdict == XDP_DROP)
		count_packet_drop(REASON_NO_TIME);
	return verdict;
}

SEC("xdp.frags")
int underlay_linecard(struct xdp_md *ctx)
{
	const void *end = (void *)(long)ctx->data_end, *inside;
	enum turn_of turn = TURN_FIRST;
	struct frame *f = find_frame();
	struct early *rules;
	int verdict;

	if (!f)
		return XDP_PASS;
	if (with_early && is_early(&rules)) {
		inside = look_inside((void *)(long)ctx->data, end); /* all else is the machine's own, and goes on */
		if (inside)
			turn = find_turn(f, inside, end);
		if (turn == TURN_LAST)
			return put_packet_off(f, rules);
		begin_first(turn);
	}
	verdict = carry_packet(ctx, f, false);
	if (with_early)
		end_first(verdict);
	return waits_for_program(f, &rules, verdict) ? put_packet_off(f, rules) : verdict;
}

/* The same in the thread below: of best effort. */
SEC("xdp.frags/cpumap")
int underlay_linecard_below(struct xdp_md *ctx)
{
	struct best_effort *b = find_best_effort();
	struct frame *f = find_frame();
	int verdict;
	__u64 begun;

	if (!with_early || !f || !b)
		return XDP_PASS;
	begun = begin_below(b, f);
	verdict = carry_packet(ctx, f, true);
	end_below(b, f, begun);
	return verdict;
}

/* Goes on in XDP, if that leads there; XDP_PASS: the frame is as it was. */
static __always_inline int walk_on_through(struct xdp_md *ctx, struct frame *f)
{
	bool through, called, relayed;
	int verdict, way;

	if (cross(f) != CONTINUE || f->mode != MODE_PEER)
		return XDP_PASS;
	through = walk_through(ctx, f);
	called = !through && calls_node(ctx, f);
	if (!through && !called)
		return XDP_PASS;
	relayed = through && f->external && begins_tunnel(f->at);
	if (called)
		way = XDP_REDIRECT;
	else if (relayed) /* to_card() compares devices of the machine's namespace */
		way = f->by_card ? relay(ctx, f) : XDP_PASS;
	else
		way = to_device(f->at);
	verdict = leave_by(ctx, f, way);
	if (verdict == XDP_PASS)
		return XDP_PASS;
	account(f);
	if (verdict == XDP_DROP || verdict == XDP_ABORTED)
		return verdict;
	if (called)
		return call_node(ctx, f);
	if (relayed) {
		count_sent(f->edit.outer + f->length);
		count_handed(f->at, f->length);
	}
	return verdict;
}

SEC("xdp.frags")
int walk_on_xdp(struct xdp_md *ctx)
{
	struct handover h = {.kind = HANDOVER_ENTER};
	struct frame *f = find_frame();
	int verdict;

	if (!f)
		return XDP_ABORTED;
	h.port = f->entered = f->from;
	h.met = f->met;
	h.queue = f->queue;
	clear_frame(f, true);
	f->length = f->longest = bpf_xdp_get_buff_len(ctx);
	f->split = false;
	if (!take_off_class_xdp(ctx)) {
		count_drop(h.port, REASON_NO_MEMORY);
		return XDP_DROP;
	}
	verdict = walk_on_through(ctx, f);
	if (verdict == XDP_PASS)
		verdict = hand_over(ctx, &h);
	if (verdict == XDP_ABORTED)
		count_drop(h.port, REASON_NO_MEMORY);
	return verdict;
}
