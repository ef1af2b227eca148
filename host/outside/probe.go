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

// HaveNAT returns nil if the kernel can connect slivers with the outside: it takes the table, and deletes
// connections, in a network namespace that ends with the question. The kernel loads the modules if it can.
func HaveNAT() error {
	if works.Load() {
		return nil
	}
	d := device{node: Node{NAT: true, Ports: []slice.HostPort{{Protocol: slice.TCP, Port: 1}}}}
	err := netns.New(func() error {
		if _, err := writeTable([]device{d}, []exit{{device: "lo", address: d.at()}}, true); err != nil {
			return err
		}
		return d.deleteConnections()
	})
	if err != nil {
		return fmt.Errorf("outside and ports of a node need nftables with NAT (nf_tables, nft_chain_nat, "+
			"nft_fib_ipv4, nf_conntrack_netlink), which this kernel does not have: install your "+
			"distribution's full kernel, or leave them out: %w", err)
	}
	works.Store(true)
	return nil
}
