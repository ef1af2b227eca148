/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames that lose their first bytes, in tc.
 */
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LEFT_BY_KERNEL (ETH_HLEN + sizeof(struct iphdr)) /* bpf_skb_adjust_room() leaves an IP header */

/*
 * The kernel shortens what it takes for an IP packet, and nothing else. It goes by skb->protocol, which it sets anew
 * when it takes a VLAN tag out of a frame, to what stands behind the tag. So two tags are put on: the second one moves
 * the first one into the frame. The bytes of the frame's own type are written again afterwards (store_skb()).
 */
static __always_inline bool pass_for_ip(struct __sk_buff *skb)
{
	const __be16 tag = bpf_htons(ETH_P_8021Q), ip = bpf_htons(ETH_P_IP);
	const __u32 behind_tag = ETH_HLEN + 2;

	if (skb->protocol == ip || skb->protocol == bpf_htons(ETH_P_IPV6))
		return true;
	return !bpf_skb_vlan_push(skb, tag, 0) && !bpf_skb_vlan_push(skb, tag, 0) &&
	       !bpf_skb_store_bytes(skb, behind_tag, &ip, sizeof(ip), 0) && !bpf_skb_vlan_pop(skb) &&
	       !bpf_skb_vlan_pop(skb);
}

/* What is left of a short frame moves to its beginning, and the end is cut off: any protocol will do. */
static __always_inline bool move_forward(struct __sk_buff *skb, __u32 from, __u64 left)
{
	__u8 rest[LEFT_BY_KERNEL];

	left -= ETH_HLEN;
	asm volatile("" : "+r"(left)); /* as header_length() */
	if (left >= LEFT_BY_KERNEL - ETH_HLEN)
		return false;
	left += ETH_HLEN;
	return !bpf_skb_load_bytes(skb, from, rest, left) && !bpf_skb_store_bytes(skb, 0, rest, left, 0) &&
	       !bpf_skb_change_tail(skb, left, 0);
}

/*
 * Cuts off so many bytes of a frame of this length; the frame that is left has an Ethernet header, which the caller
 * writes. False: the kernel refuses. It leaves what it takes for the header above IP: a short frame may be refused.
 */
static __always_inline bool cut_front(struct __sk_buff *skb, __s32 bytes, __u32 length)
{
	__u32 left = length - bytes;

	if (left < LEFT_BY_KERNEL)
		return move_forward(skb, bytes, left);
	return pass_for_ip(skb) && !bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, 0);
}
