// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * linecard: XDP at a device that leads out of the machine and is itself a port.
 *
 * It does what port_ingress at the same device would do, without an sk_buff, as long as the frame ends at a device
 * that takes frames from XDP programs (map devices), or where a policer drops it on the way there. In all other cases,
 * also where the frame is to be dropped, it does nothing at all: the frame goes on to port_ingress as it came, and is
 * counted there.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "link.h"
#include "tunnel.h"
#include "xdp.h"

SEC("xdp.frags")
int linecard(struct xdp_md *ctx)
{
	struct frame *f = find_frame();
	int verdict;

	if (!f)
		return XDP_PASS;
	clear_frame(f, true);
	f->length = f->longest = bpf_xdp_get_buff_len(ctx);
	f->from = f->entered = ctx->ingress_ifindex;
	if (cross(f) != CONTINUE || f->mode != MODE_PEER || !walk_through(ctx, f))
		return XDP_PASS;
	if (f->external && begins_tunnel(f->at)) /* its entry in devices is for what comes out */
		return XDP_PASS;
	verdict = leave_by(ctx, f, to_device(f->at));
	if (verdict == XDP_REDIRECT || verdict == XDP_DROP)
		account(f);
	return verdict;
}
