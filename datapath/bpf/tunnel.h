/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Tunnels: links whose other end is on another machine. A tunnel's end is a port, with an External record: frames to
 * it are encapsulated, and frames that come out of the tunnel enter its link there, as if a node had sent them.
 *
 *	EGRE	Ethernet over GRE with a key (RFC 2784, RFC 2890; protocol 0x6558), no checksum and no sequence
 *	VXLAN	RFC 7348; source port from the inner flow, UDP checksum zero (also over IPv6: RFC 6935, RFC 6936)
 *
 * IPv4 and IPv6 outside. There are no fragments: Don't Fragment is set, and fragments are not taken. ECN goes in and
 * out by RFC 6040.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "count.h"
#include "flow.h"
#include "frame.h"
#include "needs.h"
#include "ports.h"
#include "uplink.h"

enum tunnel_kind {
	TUNNEL_NONE = 0,
	TUNNEL_EGRE,
	TUNNEL_VXLAN,
};

/* What an outer packet must say to be of a tunnel: this alone decides. Addresses are IPv4-mapped for IPv4. */
struct tunnel {
	enum tunnel_kind kind;
	__u32 key;
	__u8 local[16];
	__u8 peer[16];
};

/* Tunnels that end here: the port of each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct tunnel);
	__type(value, __u32);
} tunnels SEC(".maps");

/*
 * Addresses where tunnels of a kind end: what comes there is the substrate's, all else is the machine's. The value
 * says nothing.
 */
struct end {
	enum tunnel_kind kind;
	__u8 local[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct end);
	__type(value, __u32);
} ends SEC(".maps");

#define TUNNEL_BITS 12 /* of a key that say which of the slice's tunnels it is; the slice's ID is above (slice.Tunnel) */

/* What is put before frames to a port: the outer header as it is on the wire, but for what each frame decides. */
struct encapsulation {
	__u8 kind;   /* enum tunnel_kind; TUNNEL_NONE: the port is no tunnel's */
	__u8 v6;     /* outside */
	__u8 dscp;   /* is copied from the inner packet */
	__u8 length; /* of the header: 28, 36, 48 or 56 */
	__u32 key;
	__u32 storm; /* frames to groups that go in, in a second (storm.h); 0: as many as come */
	__u8 header[MAX_OUTER]; /* lengths, checksum, ECN, UDP source port and flow label are zero */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct encapsulation);
} encapsulations SEC(".maps");

static __always_inline bool begins_tunnel(__u32 port)
{
	const struct encapsulation *e;

	if (!with_tunnels)
		return false;
	e = bpf_map_lookup_elem(&encapsulations, &port);
	return e && e->kind != TUNNEL_NONE;
}
