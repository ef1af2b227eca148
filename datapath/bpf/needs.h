/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the host needs of the programs. The loader writes these constants (datapath/needs.go), the verifier follows no
 * branch that they exclude, and the kernel removes it. A host that comes to need more gets its programs loaded anew,
 * before the record is written that needs it.
 */
#pragma once

#include <linux/types.h>

const volatile __u8 with_tunnels = 1;	    /* frames go into tunnels */
const volatile __u8 with_queues = 1;	    /* links are shaped: MODE_QUEUE */
const volatile __u8 with_policers = 1;	    /* links are policed */
const volatile __u8 with_storm_control = 1; /* tunnels take so many frames to groups */
const volatile __u8 with_ipv6_underlay = 1; /* tunnels have IPv6 outside */
const volatile __u8 with_programs = 1;	    /* nodes have packet programs */
const volatile __u8 with_udp = 1;	    /* UDP ports lead to packet programs */
const volatile __u8 with_card = 1;	    /* what leaves the machine waits at the uplink (uplink.h) */
const volatile __u8 with_met = 1;	    /* tunnels count the packet programs that frames have met (outer.h) */
const volatile __u8 with_mpls = 1;	    /* routers have labels (mpls.h) */
const volatile __u8 with_early = 1;	    /* best effort waits for what is reserved (early.h) */
