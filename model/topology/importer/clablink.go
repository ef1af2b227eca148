package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// clabEnd is one end of a link, in either syntax.
type clabEnd struct {
	at         position
	node, face string
	mac        string
	addresses  []string
}

var macPattern = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$`)

// Words of the short syntax that are no nodes.
var clabPseudo = []string{"host", "macvlan", "mgmt-net", "dummy", "vxlan", "vxlan-stitch"}

func (c *clab) addLinks() {
	links := c.root.Field("links")
	c.want(links, yamltree.List, "links")
	if len(links.Items) > slice.MaxInterfaces/2 {
		c.fail(links.Position, "", "%d links: one network can have %d", len(links.Items), slice.MaxInterfaces/2)
		return
	}
	used := map[string]bool{}
	for _, l := range links.Items {
		if c.want(l, yamltree.Map, "a link") {
			c.link(l, used)
		}
	}
	c.manage(used)
	c.innerBridges(c.innerPorts)
	c.vxlans()
}

func (c *clab) link(l *yamltree.Node, used map[string]bool) {
	for _, f := range l.Entries {
		switch f.Key {
		case "type", "endpoints", "endpoint", "host-interface", "mtu", "ipv4", "ipv6":
		case "labels", "vars":
			c.leaveAt("", f.Key+" of links", f.Position, lack{changesNothing, ""})
		case "mode", "remote", "vni", "dst-port", "src-port", "udp-port": // of some types
		default:
			c.unknownOfLink(f)
		}
	}
	kind := strings.ToLower(c.str(l.Field("type"), "type"))
	ends, ok := c.linkEnds(l, &kind)
	if !ok {
		return
	}
	at := l.Field("type")
	switch kind {
	case "", "brief", "veth", "veth-stitch", "host":
	case "dummy":
		c.dummy(ends[0])
		return
	case "macvlan":
		c.leaveAt(ends[0].node, "links of type macvlan", l.Position, lack{changesTraffic,
			"an interface that leads nowhere is in their place; type host links a node to the machine"})
		c.dummy(ends[0])
		return
	case "mgmt-net":
		c.mgmtLink(l, ends[0], used)
		return
	case "vxlan", "vxlan-stitch":
		c.vxlan(l, ends[0], kind)
		return
	default:
		c.fail(at.Position, "known: veth, veth-stitch, host, dummy, mgmt-net, vxlan, vxlan-stitch, macvlan",
			"unknown type of link %q", kind)
		return
	}
	c.veth(l, ends, used)
}

// linkKeys are those that a link can have.
var linkKeys = []string{"type", "endpoints", "endpoint", "host-interface", "mtu", "ipv4", "ipv6", "labels", "vars",
	"mode", "remote", "vni", "dst-port", "src-port", "udp-port"}

// unknownOfLink reports a key that containerlab does not have: as an error where it is a known one misspelt.
func (c *clab) unknownOfLink(f yamltree.Entry) {
	if hint := diagnostic.Suggest(f.Key, linkKeys); hint != "" {
		c.fail(f.Position, hint, "a link has no %q", f.Key)
		return
	}
	c.leaveAt("", f.Key+" of links", f.Position,
		lack{changesTraffic, "containerlab is not known to have this key"})
}

// linkEnds reads endpoints: in both syntaxes, and endpoint: of links with one end. kind may follow from a pseudo
// node of the short syntax.
func (c *clab) linkEnds(l *yamltree.Node, kind *string) (ends []clabEnd, ok bool) {
	if one := l.Field("endpoint"); one.Kind != yamltree.Null {
		e, ok := c.end(one)
		ends = []clabEnd{e}
		if *kind == "host" {
			ends = append(ends, clabEnd{at: one.Position, node: "host",
				face: c.str(l.Field("host-interface"), "host-interface")})
		}
		return ends, ok
	}
	list := l.Field("endpoints")
	if len(list.Items) != 2 {
		c.fail(list.Position, `write endpoints: ["a:eth1", "b:eth1"]`,
			"a link has two endpoints, this one has %d", len(list.Items))
		return nil, false
	}
	for _, item := range list.Items {
		e, ok := c.end(item)
		if !ok {
			return nil, false
		}
		if c.nodes[e.node] == nil && contains(clabPseudo, e.node) {
			if e.node != "host" {
				*kind = e.node
				continue
			}
		}
		ends = append(ends, e)
	}
	return ends, len(ends) > 0
}

// end reads one endpoint: "node:interface", or a map.
func (c *clab) end(v *yamltree.Node) (clabEnd, bool) {
	e := clabEnd{at: v.Position}
	switch v.Kind {
	case yamltree.Scalar:
		var found bool
		if e.node, e.face, found = strings.Cut(v.Text, ":"); !found {
			c.fail(v.Position, "write node:interface", "endpoint %q names no interface", v.Text)
			return e, false
		}
	case yamltree.Map:
		c.knownKeys(v, "an endpoint", "node", "interface", "mac", "ipv4", "ipv6", "vars", "labels")
		e.node, e.face = c.str(v.Field("node"), "node"), c.str(v.Field("interface"), "interface")
		e.mac = c.str(v.Field("mac"), "mac")
		if e.mac != "" && !macPattern.MatchString(e.mac) {
			c.fail(v.Field("mac").Position, "such as 02:00:00:00:00:01", "%q is not a MAC address", e.mac)
		}
		for _, key := range []string{"ipv4", "ipv6"} {
			c.address(&e, v.Field(key), key)
		}
	default:
		c.fail(v.Position, `write "node:interface"`, "an endpoint is %s", v.Kind)
		return e, false
	}
	if e.node == "" || e.face == "" {
		c.fail(v.Position, "write node:interface", "an endpoint lacks its node or its interface")
		return e, false
	}
	if n := c.nodes[e.node]; n != nil && n.as != "" && n.as != AsLinux {
		e.face = n.face(e.face)
	}
	return e, true
}

// address notes an address of an end; an empty one means none.
func (c *clab) address(e *clabEnd, v *yamltree.Node, key string) {
	text := c.str(v, key)
	if text == "" {
		return
	}
	if _, err := netip.ParsePrefix(text); err != nil {
		c.fail(v.Position, "such as 192.0.2.1/24", "%q is not an address with a prefix length", text)
		return
	}
	e.addresses = append(e.addresses, text)
}

// veth adds a cable between two nodes, or to the host.
func (c *clab) veth(l *yamltree.Node, ends []clabEnd, used map[string]bool) {
	if len(ends) != 2 {
		c.fail(l.Position, "", "the link lacks an end")
		return
	}
	c.addressesBeside(l, ends)
	link := topology.Link{Addresses: map[string]topology.Strings{}}
	for _, e := range ends {
		node, ok := c.endNode(e)
		if !ok {
			return
		}
		if n := c.nodes[e.node]; n == nil || !n.runs() { // a name in the machine, or of a port of a switch
			e.face = shortFace(e.face)
		}
		end := node + ":" + e.face
		if used[end] {
			c.fail(e.at, "", "%s is used by two links", end)
		}
		used[end] = true
		if n := c.nodes[e.node]; n != nil && n.inner != "" {
			c.innerPorts[n.name] = append(c.innerPorts[n.name], e.face)
		}
		link.Ends = append(link.Ends, topology.End(end))
		n := c.nodes[e.node]
		switch {
		case len(e.addresses) == 0:
		case n != nil && n.out != nil && n.out.Kind == slice.Switch:
			c.leaveAt(e.node, "addresses of links", e.at, lack{changesNodes, "a switch has none"})
		default:
			link.Addresses[end] = e.addresses
		}
		c.setMAC(e)
	}
	if link.Ends[0].Node() == link.Ends[1].Node() && isOurs(c.nodes[ends[0].node]) {
		c.leaveAt(ends[0].node, "links from a node to itself", l.Position,
			lack{changesTraffic, "a router here has no use for them"})
		return
	}
	if len(link.Addresses) == 0 {
		link.Addresses = nil
	}
	link.MTU = c.mtu(l)
	c.out.Links, c.linkAt = append(c.out.Links, link), append(c.linkAt, l.Position)
}

// addressesBeside reads the addresses of both ends that stand beside them, in the short syntax.
func (c *clab) addressesBeside(l *yamltree.Node, ends []clabEnd) {
	for _, key := range []string{"ipv4", "ipv6"} {
		for i, item := range l.Field(key).Items {
			if i < len(ends) {
				c.address(&ends[i], item, key)
			}
		}
	}
}

// mtu is a link's, or 0 where it has none of its own.
func (c *clab) mtu(l *yamltree.Node) int {
	at := l.Field("mtu")
	if at.Kind == yamltree.Null {
		return 0
	}
	mtu, err := strconv.Atoi(c.str(at, "mtu"))
	if err != nil || mtu < 68 || mtu > 65535 {
		c.fail(at.Position, "68 to 65535", "mtu %q is not a number of bytes", at.Text)
	}
	return mtu
}

// endNode gives the name here of an endpoint's node. The pseudo node host becomes an uplink.
func (c *clab) endNode(e clabEnd) (name string, ok bool) {
	if n := c.nodes[e.node]; n != nil {
		for range c.nodes { // a bound: nodes can name each other in a circle
			if n.partOf == "" || c.nodes[n.partOf] == nil {
				break
			}
			n = c.nodes[n.partOf]
		}
		if n.partOf != "" || n.absent {
			c.fail(e.at, "it has no network of its own here", "node %q cannot have links", e.node)
			return "", false
		}
		return c.renamed[n.name], true
	}
	if e.node != "host" {
		hint := diagnostic.Suggest(e.node, slices.Collect(maps.Keys(c.nodes)))
		c.fail(e.at, cmp.Or(hint, "add it under topology.nodes"), "no node is called %q", e.node)
		return "", false
	}
	if c.uplink == "" {
		c.uplink = "host"
		c.out.Nodes[c.uplink] = topology.Node{Attributes: topology.Attributes{Kind: slice.Uplink}}
	}
	return c.uplink, true
}

// shortFace shortens a name that Linux does not take, in a way that keeps names apart. (containerlab has the long name
// as an alternative one.)
func shortFace(name string) string {
	if len(name) <= maxFace {
		return name
	}
	return fmt.Sprintf("%s-%04x", name[:maxFace-5], address.Hash(name)&0xffff)
}

// setMAC gives an interface the address that the file wants, before the node's own commands.
func (c *clab) setMAC(e clabEnd) {
	n := c.nodes[e.node]
	if e.mac == "" || n == nil || n.out == nil || !n.runs() {
		return
	}
	n.out.Exec = append(topology.Strings{fmt.Sprintf("ip link set dev '%s' address %s", quoted(e.face), e.mac)},
		n.out.Exec...)
}

// dummy makes an interface that leads nowhere, inside the node.
func (c *clab) dummy(e clabEnd) {
	n := c.nodes[e.node]
	if n == nil || n.out != nil && !n.runs() {
		c.fail(e.at, "", "a dummy interface needs a node of kind linux; %q is none", e.node)
		return
	}
	if n.out != nil {
		face := quoted(e.face)
		n.out.Exec = append(topology.Strings{fmt.Sprintf("ip link add '%s' type dummy && ip link set '%s' up",
			face, face)}, n.out.Exec...)
	}
}

// quoted makes a text safe between single quotes of a shell.
func quoted(text string) string { return strings.ReplaceAll(text, "'", `'\''`) }
