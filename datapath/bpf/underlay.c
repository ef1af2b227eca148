// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "tunnel.h"

SEC("tc")
int underlay_ingress(struct __sk_buff *skb __attribute__((unused))) { return TC_ACT_UNSPEC; }

SEC("tc")
int uplink_ingress(struct __sk_buff *skb __attribute__((unused))) { return TC_ACT_SHOT; }

SEC("tc")
int underlay_egress(struct __sk_buff *skb __attribute__((unused))) { return TC_ACT_SHOT; }

SEC("xdp.frags")
int underlay_linecard(struct xdp_md *ctx __attribute__((unused))) { return XDP_PASS; }
