// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * underlay_linecard: XDP at a network card of the machine, the line card of tunnels.
 *
 * It does what underlay_ingress, uplink_ingress and underlay_egress do together, without an sk_buff and without going through the substrate's
 * namespace: out of the tunnel, past all routers, and to a device that takes frames from XDP programs (map devices), or into another tunnel
 * and out by this card or another one (map nics). It decides before it changes anything; where it is not certain that all of it can be done, the
 * packet goes on to underlay_ingress as it came, and is counted there. Only segments of TCP out of VXLAN go by neither: the stand-in's device makes
 * super-frames of them (gather).
 */
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#include "link.h"
#include "outer.h"
#include "route.h"
#include "tunnel.h"
#include "xdp.h"

/* Network cards that take frames from the line card of another one, by ifindex in the machine's namespace; IN_PARTS beside it: also such as lie in
 * several buffers. Elsewhere they would be lost. BACK beside it: the card's own line card sends by it that way, too, and not by XDP_TX, what
 * lies in one buffer. User space asks the drivers; a card that is gone is gone from here, too. */
#define IN_PARTS (1u << 31)
#define BACK (1u << 30)

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 128);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} nics SEC(".maps");

/* Says no where the packet does not begin with all of it. */
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

/* Whose is it, and what is inside? Says no where not all is in order. */
__noinline int open_packet(struct xdp_md *ctx, struct passage *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length = bpf_xdp_get_buff_len(ctx);
	struct outer_header h = {};
	struct outer o = {};

	if (!p || !copy_outer(&h, data, end) || h.eth.h_dest[0] & 1 || find_kind(&h) == TUNNEL_NONE)
		return false;
	if (read_outer(&h, length, 0, &o) != CONTINUE || o.total != length)
		return false;
	p->from = find_tunnel(&o);
	p->begin = o.length;
	p->length = o.total - o.length;
	p->ecn = o.ecn;
	p->split = end - data != length;
	return p->from != 0;
}

/* The inner packet's header: as the walk has left it, or as it came. */
static __always_inline const struct header *see_inner(struct xdp_md *ctx, const struct passage *p)
{
	struct walk *w = begin();
	struct frame f = {};

	if (!w || p->walked)
		return w ? &w->header : NULL;
	f.length = p->length;
	return read_header(ctx, &f, &w->header, p->begin) ? &w->header : NULL;
}

/* Would it come out of the tunnel as it is? */
__noinline int keeps_ecn(struct xdp_md *ctx, struct passage *p)
{
	const struct header *h;
	__u8 inner;

	if (!p)
		return false;
	if (p->ecn == NOT_ECT || p->ecn == ECT_0)
		return true;
	h = see_inner(ctx, p);
	if (!h)
		return false;
	inner = traffic_class(h, p->length) & 3;
	return decapsulate_ecn(inner, p->ecn) == inner;
}

/* To a device that takes it. */
__noinline int deliver(struct xdp_md *ctx, struct passage *p)
{
	const struct walk *w = begin();

	if (!p || !w || bpf_redirect_map(&devices, p->at, XDP_PASS) != XDP_REDIRECT) /* no such device; nothing has happened yet */
		return XDP_PASS;
	if (bpf_xdp_adjust_head(ctx, p->begin))
		return XDP_PASS;
	return p->walked && !write_header(ctx, &w->header, 0) ? XDP_ABORTED : XDP_REDIRECT;
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
 * A segment of TCP enters its link by the device of the tunnel's stand-in, whose veth pair makes super-frames of what comes so (GRO). The kernel does that at
 * the network card with what is in EGRE, but not with VXLAN, unless it has a device for it: without, each segment would be a frame of its own all
 * the way up to the node's TCP. Of a tunnel's segments, all that lie in one buffer take this way, or none: those stay in order.
 */
__noinline int gather(struct xdp_md *ctx, struct passage *p)
{
	const __u32 vlan_tag = 4;
	const struct port *own;
	struct walk *w = begin();
	struct frame f = {};
	__u8 inner, ecn;

	if (!p || !w || p->split) /* Linux before 6.3 loses what is redirected in several buffers */
		return XDP_PASS;
	if (bpf_redirect_map(&devices, p->from, XDP_PASS) != XDP_REDIRECT) /* no such device; nothing has happened yet */
		return XDP_PASS;
	own = find_port(p->from);
	f.length = p->length;
	if (!own || f.length > own->mtu + ETH_HLEN + vlan_tag) /* a veth pair drops it, and counts it where nobody looks */
		return XDP_PASS;
	if (f.length < ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) || !read_header(ctx, &f, &w->header, p->begin))
		return XDP_PASS;
	if (!is_ip(&w->header) || protocol(&w->header) != IPPROTO_TCP)
		return XDP_PASS;
	inner = traffic_class(&w->header, f.length) & 3;
	ecn = decapsulate_ecn(inner, p->ecn);
	if (ecn == ECN_DROP || bpf_xdp_adjust_head(ctx, p->begin))
		return XDP_PASS;
	count_received(p->begin + f.length, false); /* the device counts what emerges */
	if (ecn == inner)
		return XDP_REDIRECT;
	write_ecn(&w->header, ecn);
	if (!bpf_xdp_store_bytes(ctx, 0, &w->header.eth, header_changed(&w->header)))
		return XDP_REDIRECT;
	count_drop(p->from, REASON_NO_MEMORY); /* the frame has become shorter than it was, between two looks */
	return XDP_ABORTED;
}

/* Writes the outer headers to where the packet begins: n bytes behind Ethernet's. */
static __always_inline bool paste_outer(struct xdp_md *ctx, const struct wrapping *w, __u32 n)
{
	void *data = (void *)(long)ctx->data;
	const __u32 least = sizeof(struct iphdr) + 8;
	__u32 *to = data + sizeof(w->eth);
	const __u32 *from = (const void *)w->bytes;

	if (data + sizeof(w->eth) + MAX_OUTER > (void *)(long)ctx->data_end)
		return !bpf_xdp_store_bytes(ctx, 0, (void *)&w->eth, sizeof(w->eth) + n);
	__builtin_memcpy(data, &w->eth, sizeof(w->eth));
	__builtin_memcpy(to, from, least);
	for (__u32 i = least / 4; i < MAX_OUTER / 4; i++)
		if (4 * i < n)
			to[i] = from[i];
	return true;
}

/* How it leaves by a network card, if it can. */
static __always_inline int choose_card(const struct xdp_md *ctx, const struct passage *p, __u32 nic)
{
	if (nic == ctx->ingress_ifindex) /* Linux before 6.3 loses what is redirected in several buffers, but not what is sent back */
		return p->split ? XDP_TX : bpf_redirect_map(&nics, nic | BACK, XDP_TX);
	return bpf_redirect_map(&nics, p->split ? nic | IN_PARTS : nic, XDP_PASS);
}

/* Into the tunnel that begins where the frame has come to, and out by a card. */
__noinline int relay(struct xdp_md *ctx, struct passage *p)
{
	const struct encapsulation *e;
	const struct uplink *u = find_uplink();
	struct wrapping *w = find_wrapping();
	const struct header *h;
	const struct road *r;
	struct frame f = {};
	__u32 n, at;
	int verdict, cut;

	if (!p || !u || !u->outside || !w)
		return XDP_PASS;
	at = p->at; /* on the stack, where Linux 6.1 wants keys to be */
	e = bpf_map_lookup_elem(&encapsulations, &at);
	h = see_inner(ctx, p);
	if (!e || e->kind == TUNNEL_NONE || e->storm || !h)
		return XDP_PASS;
	n = e->length & OUTER_MASK;
	f.length = p->length;
	write_outer(w, e, &f, h, p->length, false);
	r = keep_road(ctx, w->bytes, e, at, u);
	if (!r || n + p->length > r->mtu)
		return XDP_PASS;
	verdict = choose_card(ctx, p, r->nic);
	if (verdict == XDP_PASS)
		return XDP_PASS;
	__builtin_memcpy(w->eth.h_dest, r->to, ETH_ALEN);
	__builtin_memcpy(w->eth.h_source, r->from, ETH_ALEN);
	cut = (int)p->begin - (int)(sizeof(w->eth) + n);
	if (cut && bpf_xdp_adjust_head(ctx, cut))
		return XDP_PASS;
	if (!paste_outer(ctx, w, n) || (p->walked && !write_header(ctx, h, sizeof(w->eth) + n)))
		return XDP_ABORTED;
	count_sent(sizeof(w->eth) + n + p->length);
	count_handed(p->at, p->length);
	return verdict;
}

SEC("xdp.frags")
int underlay_linecard(struct xdp_md *ctx)
{
	struct passage p = {};
	struct frame f = {};
	bool through, again;
	int verdict = XDP_PASS;

	if (!open_packet(ctx, &p))
		return XDP_PASS;
	f.from = p.from;
	f.length = f.longest = p.length;
	if (cross(&f) != CONTINUE)
		return XDP_PASS;
	through = f.mode == MODE_PEER && walk_through(ctx, &f, p.begin);
	again = through && f.external && begins_tunnel(f.at);
	p.at = f.at;
	p.walked = f.walk && f.walk->hops;
	if (through && keeps_ecn(ctx, &p))
		verdict = again ? relay(ctx, &p) : deliver(ctx, &p);
	if (verdict == XDP_PASS) /* a queue takes a super-frame for one frame */
		return again || f.mode == MODE_QUEUE ? XDP_PASS : gather(ctx, &p);
	count_received(p.begin + p.length, true);
	count_emerged(p.from, p.length);
	if (f.walk)
		account(&f);
	if (verdict == XDP_ABORTED) /* the frame has become shorter than it was, between two looks */
		count_drop(p.from, REASON_NO_MEMORY);
	return verdict;
}
