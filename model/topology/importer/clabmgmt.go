package importer

import (
	"net/netip"
	"strconv"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// management is the network of containerlab's eth0: a switch to which each container has an interface. It is made where
// the file speaks of it; Pergola itself needs none.
type management struct {
	wanted  bool
	name    string // of the switch
	subnets [address.Families]netip.Prefix
	mtu     int
	taken   map[netip.Addr]bool
	next    [address.Families]netip.Addr // all before are taken
	extra   []topology.Link              // of type mgmt-net
}

// Keys of mgmt that are read; the others change nothing here.
var mgmtUsed = []string{"network", "ipv4-subnet", "ipv6-subnet", "ipv4-gw", "ipv6-gw", "mtu"}

var subnetKeys = [address.Families]string{"ipv4-subnet", "ipv6-subnet"}

const managementMTU = 1500

// readManagement reads mgmt:, and whether nodes have addresses in it. Nodes are read already.
func (c *clab) readManagement(root *yamltree.Node) {
	m := &c.management
	m.taken = map[netip.Addr]bool{}
	at := root.Field("mgmt")
	if c.want(at, yamltree.Map, "mgmt") {
		m.wanted = true
		for _, f := range at.Entries {
			if !contains(mgmtUsed, f.Key) {
				c.leaveAt("", f.Key+" of mgmt", f.Position, lack{changesNothing, ""})
			}
		}
	}
	for family, key := range subnetKeys {
		m.subnets[family] = netip.MustParsePrefix([]string{"172.20.20.0/24", "3fff:172:20:20::/64"}[family])
		text := c.str(at.Field(key), key)
		if text == "" || text == "auto" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || address.Family(p.Addr()) != family {
			c.fail(at.Field(key).Position, "such as "+m.subnets[family].String(),
				"%s %q is not a network", key, text)
			continue
		}
		m.subnets[family] = p.Masked()
	}
	for family, subnet := range m.subnets {
		m.next[family] = subnet.Addr().Next()
	}
	for family, key := range []string{"ipv4-gw", "ipv6-gw"} {
		gateway := m.subnets[family].Addr().Next() // the machine's address, which no node has
		if a, err := netip.ParseAddr(c.str(at.Field(key), key)); err == nil {
			gateway = a
		}
		m.taken[gateway] = true
	}
	m.mtu = managementMTU
	if n, err := strconv.Atoi(c.str(at.Field("mtu"), "mtu")); err == nil && n >= 68 && n <= 65535 {
		m.mtu = n
	}
	for _, n := range c.nodes {
		fixed := n.find("mgmt-ipv4").Text + n.find("mgmt-ipv6").Text
		m.wanted = m.wanted || n.isManaged() && fixed != ""
	}
}

// isManaged reports whether the node has an interface in the management network. Routers of ours have none: their
// routing would take it for a link.
func (n *clabNode) isManaged() bool {
	return n.out != nil && n.partOf == "" && n.runs() && !n.isOurs() && n.find("network-mode").Text != "none"
}

// managementFace is the name of a node's interface in the management network.
func managementFace(n *clabNode) string {
	if b, ok := bootOf(n.kind); ok && n.as == AsImage && b.management != "" {
		return b.management
	}
	return "eth0"
}

// manage makes the management network. Links are made already.
func (c *clab) manage(used map[string]bool) {
	m := &c.management
	if !m.wanted {
		return
	}
	nodes := c.root.Field("nodes").Entries
	members := 0
	for _, f := range nodes {
		if n := c.nodes[f.Key]; n != nil && n.isManaged() {
			members++
			c.takeFixed(n)
		}
	}
	if members+len(m.extra) == 0 {
		return
	}
	taken := namer{}
	for name := range c.out.Nodes {
		taken[name] = true
	}
	for _, name := range c.renamed {
		taken[name] = true
	}
	m.name = taken.name("mgmt", "mgmt")
	c.out.Nodes[m.name] = topology.Node{Attributes: topology.Attributes{Kind: slice.Switch}}
	for _, f := range nodes {
		n := c.nodes[f.Key]
		if n == nil || !n.isManaged() {
			continue
		}
		if end := c.renamed[n.name] + ":" + managementFace(n); !used[end] {
			c.manageNode(n, end)
		}
	}
	for _, l := range m.extra {
		l.Ends = append(l.Ends, topology.End(m.name))
		c.out.Links = append(c.out.Links, l)
	}
}

var fixedKeys = [address.Families]string{"mgmt-ipv4", "mgmt-ipv6"}

// takeFixed notes the addresses that the file gives a node, so that no other node gets them.
func (c *clab) takeFixed(n *clabNode) {
	for family, key := range fixedKeys {
		at := n.find(key)
		text := c.str(at, key)
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || address.Family(a) != family:
			c.fail(at.Position, "such as "+c.management.subnets[family].Addr().Next().Next().String(),
				"%s %q of node %q is not an address", key, text, n.name)
		case !c.management.subnets[family].Contains(a):
			c.fail(at.Position, "", "%s %s of node %q is not in %s", key, a, n.name,
				c.management.subnets[family])
		case c.management.taken[a]:
			c.fail(at.Position, "", "%s %s of node %q is taken", key, a, n.name)
		default:
			c.management.taken[a] = true
		}
	}
}

// manageNode links a node to the management network, with its own addresses or the next ones.
func (c *clab) manageNode(n *clabNode, end string) {
	m := &c.management
	var addresses topology.Strings
	for family, key := range fixedKeys {
		subnet := m.subnets[family]
		a, err := netip.ParseAddr(n.find(key).Text)
		if err != nil {
			for m.taken[m.next[family]] {
				m.next[family] = m.next[family].Next()
			}
			a = m.next[family]
			m.taken[a] = true
		}
		switch {
		case subnet.Contains(a) && (err == nil || address.Usable(subnet, a)):
			addresses = append(addresses, netip.PrefixFrom(a, subnet.Bits()).String())
		case err != nil:
			c.leaveAt(n.name, "addresses in "+subnet.String(), n.at.Position,
				lack{changesNodes, "all are taken: give mgmt a larger " + subnetKeys[family]})
		}
	}
	isManagement := true
	if n.out.Interfaces == nil {
		n.out.Interfaces = map[string]topology.Interface{}
	}
	n.out.Interfaces[managementFace(n)] = topology.Interface{Management: &isManagement}
	c.out.Links = append(c.out.Links, topology.Link{
		Ends:           []topology.End{topology.End(end), topology.End(m.name)},
		Addresses:      map[string]topology.Strings{end: addresses},
		LinkAttributes: topology.LinkAttributes{MTU: m.mtu},
	})
}

// mgmtLink is a second interface of a node in the management network (type mgmt-net), without addresses.
func (c *clab) mgmtLink(l *yamltree.Node, e clabEnd, used map[string]bool) {
	n := c.nodes[e.node]
	if n == nil {
		c.endNode(e) // says so
		return
	}
	if n.out == nil || !n.runs() {
		c.leaveAt(e.node, "links of type mgmt-net", l.Position,
			lack{changesNodes, "only what has processes needs one"})
		return
	}
	name, ok := c.endNode(e)
	if !ok {
		return
	}
	end := name + ":" + e.face
	if used[end] {
		c.fail(e.at, "", "%s is used by two links", end)
	}
	used[end] = true
	c.setMAC(e)
	c.management.wanted = true
	isManagement := true
	if n.out.Interfaces == nil {
		n.out.Interfaces = map[string]topology.Interface{}
	}
	n.out.Interfaces[e.face] = topology.Interface{Management: &isManagement}
	link := topology.Link{Ends: []topology.End{topology.End(end)}, LinkAttributes: topology.LinkAttributes{
		MTU: c.management.mtu}}
	if len(e.addresses) > 0 {
		link.Addresses = map[string]topology.Strings{end: e.addresses}
	}
	c.management.extra = append(c.management.extra, link)
}

// addresses are those that links give to nodes.
func (c *clab) addresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, l := range c.out.Links {
		for _, texts := range l.Addresses {
			for _, text := range texts {
				if p, err := netip.ParsePrefix(text); err == nil {
					all[p.Addr()] = true
				}
			}
		}
	}
	return all
}
