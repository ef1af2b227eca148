package outside

import (
	"fmt"
	"sync/atomic"

	"github.com/pergola-net/pergola/datapath/claims"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// works is true once the kernel took the table. What failed is tried again: a module may be there meanwhile.
var works atomic.Bool

// HaveBind returns nil if slivers can reserve ports by binding them.
func HaveBind() error {
	if err := claims.Supported(); err != nil {
		return fmt.Errorf("bind: of a node's ports needs a kernel that tells of binds, with cgroup2 "+
			"(CONFIG_CGROUP_BPF): list the ports instead: %w", err)
	}
	return nil
}

// HaveNAT returns nil if the kernel can connect slivers with the outside: it takes the table, shapes a device, and
// deletes connections, in a network namespace that ends with the question. The kernel loads the modules if it can.
func HaveNAT() error {
	if works.Load() {
		return nil
	}
	d := device{ipv6: true, node: Node{
		NAT: true, Ports: []slice.HostPort{{Protocol: slice.TCP, Port: 1}}, Rate: slice.DefaultOutsideRate,
	}}
	err := netns.New(func() error {
		t, err := readTable()
		if err != nil {
			return err
		}
		_, err = t.write(rules{
			owner: "probe", devices: []device{d}, most: leastConnections, guard: guard{true, true},
			exits: []exit{{device: "lo", address: d.at()}, {device: "lo", address: d.at6()}},
		})
		if err != nil {
			return err
		}
		if err := setRate("lo", d.node.Rate); err != nil {
			return err
		}
		return d.deleteConnections()
	})
	if err != nil {
		return fmt.Errorf("outside and ports of a node need nftables with NAT and bounds of connections "+
			"(nf_tables, nft_chain_nat, nft_fib_inet, nft_limit, nft_connlimit, nf_conntrack_netlink), "+
			"and token buckets (sch_tbf), which this kernel does not have: install your distribution's "+
			"full kernel, or leave them out: %w", err)
	}
	works.Store(true)
	return nil
}
