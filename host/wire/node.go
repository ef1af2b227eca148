package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Node is what is configured in a node's namespace beside its interfaces' existence.
type Node struct {
	Router     bool // forwards
	Sysctls    map[string]string
	Loopbacks  []netip.Prefix
	Interfaces []Interface
	Routes     []slice.Route
}

// Interface is one of the node's, by the name that it has there.
type Interface struct {
	Name      string
	Addresses []netip.Prefix
}

// nodeDefaults differ from the kernel's, so that a network is usable as soon as it is up and stays silent until
// somebody sends. They come before the first interface, which takes them over, and users' sysctls come after them: so
// they are set once, unless the last of them is. By directory: to find conf among those of all namespaces takes the
// kernel the longer, the more there are.
var nodeDefaults = []struct {
	dir  string
	sets []sysctl // in all and default
}{
	{"/proc/sys/net/ipv4/conf", []sysctl{
		{"rp_filter", "0"},           // the kernel's own default; a new namespace has the machine's
		{"promote_secondaries", "1"}, // the second address of a subnet stays when the first goes
	}},
	{"/proc/sys/net/ipv6/conf", []sysctl{
		{"keep_addr_on_down", "1"},    // a link that goes down and up again has its addresses, as of IPv4
		{"router_solicitations", "0"}, // no router answers them; on a LAN of 500 hosts, they are a flood
		{"accept_dad", "0"},           // addresses are usable at once: one plan has no duplicates
	}},
}

// lastDefault tells whether all were set: the kernel's is 1.
var lastDefault = sysctl{"net/ipv6/conf/default/accept_dad", "0"}

// setNodeDefaults sets what this kernel has of them: all, unless it was built without IPv6.
func setNodeDefaults() error {
	if lastDefault.is() {
		return nil
	}
	for _, d := range nodeDefaults {
		dir, err := os.OpenRoot(d.dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set sysctls: %w", err)
		}
		err = setDefaults(dir, d.sets)
		_ = dir.Close()
		if err != nil {
			return fmt.Errorf("set sysctls in %s: %w", d.dir, err)
		}
	}
	return nil
}

func setDefaults(dir *os.Root, sets []sysctl) error {
	for _, s := range sets {
		for _, of := range []string{"all", "default"} {
			if err := dir.WriteFile(of+"/"+s.path, []byte(s.value), 0); err != nil &&
				!errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// ConfigureNode makes a node's namespace, found by a process in it, be as n says. It adds what is missing and takes
// away what it added earlier and n no longer has. What the node's own processes added stays.
func (s *HostNetwork) ConfigureNode(ctx context.Context, pid int, n Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sysctls, err := n.sysctls()
	if err != nil {
		return fmt.Errorf("configure node: %w", err)
	}
	err = netns.Do(netns.Path(pid), func() error {
		if len(n.Interfaces) == 0 { // the first would have brought them
			if err := setNodeDefaults(); err != nil {
				return err
			}
		}
		nl, err := dialHere()
		if err != nil {
			return err
		}
		defer nl.close()
		return nl.configure(n, sysctls)
	})
	if err != nil {
		return fmt.Errorf("configure node of process %d: %w", pid, err)
	}
	return nil
}

// groups is how many multicast groups a socket of a router may be in. With the kernel's 20, OSPF of FRR, which has one
// socket and one or two groups for each interface, speaks at 20 of them at most.
const groups = "4096"

// sysctls gives the users' after ours, in an order that does not change.
func (n Node) sysctls() ([]sysctl, error) {
	forward := "0"
	if n.Router {
		forward = "1"
	}
	all := []sysctl{{"net/ipv4/ip_forward", forward}}
	if n.Router {
		// The kernel's own value when forwarding is switched on, which on a machine that forwards it is from
		// the beginning.
		all = append(all, sysctl{"net/ipv4/conf/all/accept_redirects", "0"},
			sysctl{"net/ipv4/igmp_max_memberships", groups})
	}
	if haveIPv6() {
		all = append(all, sysctl{"net/ipv6/conf/all/forwarding", forward})
	}
	names := make([]string, 0, len(n.Sysctls))
	for name := range n.Sysctls {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s, err := parseSysctl(name, n.Sysctls[name])
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

var haveIPv6 = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
})

func (c *conn) configure(n Node, sysctls []sysctl) error {
	lo, err := c.device("lo")
	if err != nil {
		return err
	}
	if err := c.changeUp(lo.index, true); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for _, s := range sysctls {
		if err := s.set(); err != nil {
			return err
		}
	}
	indexes := map[string]int{"lo": lo.index}
	addresses := map[int][]netip.Prefix{lo.index: n.Loopbacks}
	for _, i := range n.Interfaces {
		d, err := c.device(i.Name)
		if err != nil {
			return err
		}
		indexes[i.Name] = d.index
		addresses[d.index] = i.Addresses
	}
	if err := c.setAddresses(addresses); err != nil {
		return err
	}
	return c.setRoutes(n.Routes, indexes)
}
