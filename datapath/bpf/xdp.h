/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs of XDP do with a frame, which begins at `at` in what came in (tunnelcard.c); 0: that is the frame.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "header.h"
#include "link.h"
#include "walk.h"

/* Devices that take frames from XDP programs, by port: frames to the port; or, where a tunnel begins, out of it, to come in there. User space decides; a device that
 * is gone is gone from here, too. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

#define MAX_BEGIN 127 /* behind the longest outer headers */

static __always_inline bool read_header(struct xdp_md *ctx, const struct frame *f, struct header *h, __u32 at)
{
	__u64 n = header_length(f);

	at &= MAX_BEGIN;
	if (copy_header(h, f, (void *)(long)ctx->data + at, (void *)(long)ctx->data_end))
		return true;
	return n && !bpf_xdp_load_bytes(ctx, at, &h->eth, n);
}

static __always_inline bool write_header(struct xdp_md *ctx, const struct header *h, __u32 at)
{
	at &= MAX_BEGIN;
	if (paste_header(h, (void *)(long)ctx->data + at, (void *)(long)ctx->data_end))
		return true;
	return !bpf_xdp_store_bytes(ctx, at, (void *)&h->eth, header_changed(h));
}

/* Past all routers on the way? */
static __always_inline bool walk_through(struct xdp_md *ctx, struct frame *f, __u32 at)
{
	const struct leg *in = arrived(f);
	struct walk *w;

	if (!in)
		return true;
	w = begin();
	if (!w || !read_header(ctx, f, &w->header, at))
		return false;
	return walk(f, w, true) == CONTINUE && w->why == WALK_ON && f->mode == MODE_PEER;
}
