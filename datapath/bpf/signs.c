// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What happens in nodes and the kernel announces nowhere: that somebody opens a packet socket, and that somebody writes
 * a parameter of the network. Package signs attaches these programs; they change nothing.
 *
 *	packet_opened	tracepoint percpu:percpu_alloc_percpu: packet_create() allocates a counter for each socket
 *			(since Linux 3.15), and little else allocates one of that size. No other hook is on every
 *			kernel: probes of functions may be compiled out, and cgroups hear of sockets of IP alone.
 *	sysctl_written	cgroup: before a parameter is written
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define RELOCATED __attribute__((preserve_access_index)) /* as the running kernel has it */

struct ns_common {
	unsigned int inum;
} RELOCATED;

struct net {
	struct ns_common ns;
} RELOCATED;

struct nsproxy {
	struct net *net_ns;
} RELOCATED;

struct task_struct {
	struct nsproxy *nsproxy;
} RELOCATED;

/* Network namespaces that somebody wants to know of, by inode number. The value says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} signs SEC(".maps");

struct sign {
	__u32 netns;
	char sysctl[60]; /* its path below /proc/sys; empty: a packet socket */
};

/* The namespace of the process, if somebody wants to know of it; else 0. */
static __always_inline __u32 watched_netns(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 inum = task->nsproxy->net_ns->ns.inum;

	return bpf_map_lookup_elem(&watched, &inum) ? inum : 0;
}

/* The tracepoint's arguments, as far as they matter (Linux 5.19). */
enum {
	ALLOC_RESERVED = 1,
	ALLOC_SIZE = 3,
	ALLOC_ALIGN = 4,
};

SEC("raw_tracepoint/percpu_alloc_percpu")
int packet_opened(struct bpf_raw_tracepoint_args *ctx)
{
	struct sign s = {};

	if (ctx->args[ALLOC_SIZE] != sizeof(int) || ctx->args[ALLOC_ALIGN] != sizeof(int) ||
	    ctx->args[ALLOC_RESERVED] & 1)
		return 0;
	s.netns = watched_netns();
	if (s.netns)
		bpf_ringbuf_output(&signs, &s, sizeof(s), 0);
	return 0;
}

SEC("cgroup/sysctl")
int sysctl_written(struct bpf_sysctl *ctx)
{
	const int allow = 1;
	struct sign s = {};

	if (!ctx->write)
		return allow;
	s.netns = watched_netns();
	if (s.netns && bpf_sysctl_get_name(ctx, s.sysctl, sizeof(s.sysctl), 0) > 0)
		bpf_ringbuf_output(&signs, &s, sizeof(s), 0);
	return allow;
}

char _license[] SEC("license") = "Dual BSD/GPL";
