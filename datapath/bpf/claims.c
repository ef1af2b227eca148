// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A process in a sliver that binds a port of the sliver's range claims that port of the machine for the sliver, or is
 * told EADDRINUSE if another one has it. Package claims attaches these programs to all processes of the machine;
 * other sockets than those pass untouched.
 *
 *	bind4	cgroup: before a socket of IPv4 is bound
 *	bind6	cgroup: before a socket of IPv6 is bound, which may take IPv4, too
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum {
	REFUSE,
	ALLOW,
};

/* A sliver that claims ports by binding them. */
struct binder {
	__be32 address; /* of its interface to the machine */
	__u16 first, last;
	__s32 more; /* claims that it may make; the agent writes the number with each look at the claims */
};

/* By cookie of the network namespace, which the kernel uses for no other one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct binder);
} binders SEC(".maps");

struct port {
	__u16 protocol, number;
};

struct claim {
	__u64 netns; /* 0: somebody's who does not bind: the machine's, or another sliver's */
	__u64 since; /* when it was bound last: CLOCK_MONOTONIC */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17); /* all ports of TCP and UDP */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct port);
	__type(value, struct claim);
} claims SEC(".maps");

/* Says that there are new claims. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} news SEC(".maps");

static __always_inline int claim(struct bpf_sock_addr *ctx, __be32 address)
{
	struct port port = {.protocol = ctx->protocol, .number = bpf_ntohs(ctx->user_port)};
	__u64 netns = bpf_get_netns_cookie(ctx);
	struct claim own = {.netns = netns, .since = bpf_ktime_get_ns()}, *is;
	struct binder *b = bpf_map_lookup_elem(&binders, &netns);

	if (!b || (port.protocol != IPPROTO_TCP && port.protocol != IPPROTO_UDP))
		return ALLOW;
	if (port.number < b->first || port.number > b->last) /* 0, too: any port */
		return ALLOW;
	if (address && address != b->address) /* nothing from outside comes there */
		return ALLOW;
	if (b->more > 0 && !bpf_map_update_elem(&claims, &port, &own, BPF_NOEXIST)) {
		b->more--; /* two processors may count as one */
		bpf_ringbuf_output(&news, &port, sizeof(port), 0);
		return ALLOW;
	}
	is = bpf_map_lookup_elem(&claims, &port);
	if (is && is->netns != netns) {
		bpf_set_retval(-EADDRINUSE);
		return REFUSE;
	}
	if (is)
		is->since = own.since;
	return ALLOW; /* without a claim if there is no room, or memory: the agent finds the socket later */
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	return claim(ctx, ctx->user_ip4);
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	if (ctx->user_ip6[0] || ctx->user_ip6[1])
		return ALLOW;
	if (ctx->user_ip6[2] == bpf_htonl(0xffff)) /* ::ffff:192.0.2.1 is IPv4 */
		return claim(ctx, ctx->user_ip6[3]);
	if (ctx->user_ip6[2] || ctx->user_ip6[3])
		return ALLOW;
	return claim(ctx, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
