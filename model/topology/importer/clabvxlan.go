package importer

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// clabTunnel is a link of type vxlan: an interface of a node whose frames are sent to an address in VXLAN. containerlab
// makes it in the machine; here it is the node's own, and its packets go by the management network.
type clabTunnel struct {
	at     position
	node   *clabNode
	face   string
	kind   string
	remote netip.Addr
	line   string
}

const maxVNI = 1<<24 - 1

func (c *clab) vxlan(l *yamltree.Node, e clabEnd, kind string) {
	n := c.nodes[e.node]
	if n == nil {
		c.endNode(e) // says so
		return
	}
	if n.out == nil || !n.runs() || n.isOurs() {
		c.leaveAt(e.node, "links of type "+kind, l.Position,
			lack{changesTraffic, "only a container of its own image has one"})
		return
	}
	remote, err := netip.ParseAddr(c.str(l.Field("remote"), "remote"))
	if err != nil {
		c.fail(l.Field("remote").Position, "such as 172.20.20.3, the mgmt-ipv4 of a node",
			"remote %q of a link of type %s is not an address", l.Field("remote").Text, kind)
		return
	}
	vni, ok := c.count(l.Field("vni"), "vni", maxVNI)
	port, ok2 := c.count(l.Field("dst-port"), "dst-port", 1<<16-1)
	if !ok || !ok2 {
		return
	}
	c.management.wanted = true
	line := fmt.Sprintf("ip link add '%s' type vxlan id %d remote %s dstport %d", quoted(e.face), vni, remote, port)
	if at := l.Field("src-port"); at.Kind != yamltree.Null {
		if source, ok := c.count(at, "src-port", 1<<16-1); ok {
			line += fmt.Sprintf(" srcport %d %d", source, source)
		}
	}
	if e.mac != "" {
		line += fmt.Sprintf(" && ip link set dev '%s' address %s", quoted(e.face), e.mac)
	}
	line += fmt.Sprintf(" && ip link set dev '%s' up", quoted(e.face))
	c.tunnels = append(c.tunnels, clabTunnel{l.Position, n, e.face, kind, remote, line})
}

// count reads a number from 1.
func (c *clab) count(at *yamltree.Node, key string, most int) (int, bool) {
	n, err := strconv.Atoi(c.str(at, key))
	if err != nil || n < 1 || n > most {
		c.fail(at.Position, fmt.Sprintf("1 to %d", most), "%s %q is not a number of a link of type vxlan",
			key, at.Text)
		return 0, false
	}
	return n, true
}

// vxlans makes the tunnels, when the management network is there.
func (c *clab) vxlans() {
	if len(c.tunnels) == 0 {
		return
	}
	here := c.addresses()
	for _, t := range c.tunnels {
		if !here[t.remote] {
			c.leaveAt(t.node.name, "remote of links of type "+t.kind, t.at,
				lack{changesTraffic, t.remote.String() + " is no address of a node here"})
		}
		t.node.out.Exec = append(topology.Strings{t.line}, t.node.out.Exec...)
	}
}
