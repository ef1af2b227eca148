// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * linecard: XDP at a device that leads out of the machine and is itself a port.
 *
 * It does what port_ingress at the same device would do, without an sk_buff, as long as the frame ends at a device that takes frames
 * from XDP programs (map devices). In all other cases, also where the frame is to be dropped, it does nothing at all: the
 * frame goes on to port_ingress as it came, and is counted there.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "link.h"
#include "walk.h"

/* Devices that take frames from XDP programs, by port. User space decides; a device that is gone is gone from here, too. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

static __always_inline bool read_header(struct xdp_md *ctx, const struct frame *f, struct header *h)
{
	__u64 n = header_length(f);

	if (copy_header(h, f, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return true;
	return n && !bpf_xdp_load_bytes(ctx, 0, &h->eth, n);
}

static __always_inline bool write_header(struct xdp_md *ctx, const struct header *h)
{
	if (paste_header(h, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return true;
	return !bpf_xdp_store_bytes(ctx, 0, (void *)&h->eth, header_changed(h));
}

/* Past all routers on the way? */
static __always_inline bool walk_through(struct xdp_md *ctx, struct frame *f)
{
	const struct leg *in = arrived(f);
	struct walk *w;

	if (!in)
		return true;
	w = begin();
	if (!w || !read_header(ctx, f, &w->header))
		return false;
	return walk(f, w, in, true) == CONTINUE && w->why == WALK_ON && f->mode == MODE_PEER;
}

SEC("xdp.frags")
int linecard(struct xdp_md *ctx)
{
	struct frame f = {};

	f.length = bpf_xdp_get_buff_len(ctx);
	f.from = ctx->ingress_ifindex;
	if (cross(&f) != CONTINUE || f.mode != MODE_PEER || !walk_through(ctx, &f))
		return XDP_PASS;
	if (bpf_redirect_map(&devices, f.at, XDP_PASS) != XDP_REDIRECT) /* no such device; nothing has happened yet */
		return XDP_PASS;
	if (f.walk && f.walk->hops) {
		if (!write_header(ctx, &f.walk->header))
			return XDP_PASS;
		account(&f);
	}
	return XDP_REDIRECT;
}
