// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What happens in nodes and the kernel announces nowhere: that somebody opens a packet socket, and that somebody writes
 * a parameter of the network. Package signs attaches these programs; they change nothing.
 *
 *	packet_opened	tracepoint percpu:percpu_alloc_percpu: packet_create() allocates a counter for each socket
 *			(since Linux 3.15). Others allocate some of that size, too: each BPF program, so each
 *			seccomp filter, and the first thread of a process. So where packet_create() calls from is
 *			learnt first. No other hook is on every kernel: probes of functions may be compiled out, and
 *			cgroups hear of sockets of IP alone.
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

enum watch_kind {
	WATCH_TELL = 1, /* somebody wants to know of it */
	WATCH_LEARN,	/* what allocates there is a packet socket: its call site is learnt */
};

/* Network namespaces, by inode number, and their enum watch_kind. */
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

static __always_inline __u32 current_netns(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->nsproxy->net_ns->ns.inum;
}

/* Returns 0 where nobody wants to know of the namespace. */
static __always_inline __u8 watch_of(__u32 netns)
{
	const __u8 *kind = bpf_map_lookup_elem(&watched, &netns);

	return kind ? *kind : 0;
}

/* From where the kernel allocates for a packet socket; 0: it is not known, and may be anywhere. */
volatile __u64 packet_site;

/* The tracepoint's arguments, as far as they matter (Linux 5.19). */
enum {
	ALLOC_SITE = 0,
	ALLOC_RESERVED = 1,
	ALLOC_SIZE = 3,
	ALLOC_ALIGN = 4,
};

SEC("raw_tracepoint/percpu_alloc_percpu")
int packet_opened(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 site = ctx->args[ALLOC_SITE];
	struct sign s = {};
	__u8 kind;

	if (ctx->args[ALLOC_SIZE] != sizeof(int) || ctx->args[ALLOC_ALIGN] != sizeof(int) ||
	    ctx->args[ALLOC_RESERVED] & 1)
		return 0;
	if (packet_site && packet_site != site)
		return 0;
	s.netns = current_netns();
	kind = watch_of(s.netns);
	if (kind == WATCH_LEARN)
		packet_site = site;
	else if (kind == WATCH_TELL)
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
	s.netns = current_netns();
	if (watch_of(s.netns) == WATCH_TELL && bpf_sysctl_get_name(ctx, s.sysctl, sizeof(s.sysctl), 0) > 0)
		bpf_ringbuf_output(&signs, &s, sizeof(s), 0);
	return allow;
}

char _license[] SEC("license") = "Dual BSD/GPL";
