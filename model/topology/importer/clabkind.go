package importer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
	"github.com/pergola-net/pergola/model/wording"
)

// What can replace the nodes of a kind.
const (
	AsFRR    = "frr"    // a router with FRR, with addresses and routing by Pergola
	AsBIRD   = "bird"   // the same, with BIRD
	AsHost   = "host"   // an end system with addresses by Pergola
	AsSwitch = "switch" // an Ethernet switch
	AsLinux  = "linux"  // a container of its image, as a node of kind linux
	AsImage  = "image"  // a container of its image, started as containerlab starts those of the kind
)

// Replacements are all of them.
var Replacements = []string{AsFRR, AsBIRD, AsHost, AsSwitch, AsLinux, AsImage}

// AllKinds is the key of a KindTable that stands for each kind of a vendor that the table does not name.
const AllKinds = "all"

// KindTable says what replaces nodes, by the kind that the containerlab file gives them.
type KindTable map[string]string

const (
	kindLinux  = "linux"
	kindBridge = "bridge"
	kindOVS    = "ovs-bridge"
	kindHost   = "host"
)

// ClabKinds are those that need no replacement.
var ClabKinds = []string{kindLinux, kindBridge, kindOVS, kindHost}

// ClabVendorKinds are the kinds of routers, switches and firewalls that containerlab knows, with their older names.
var ClabVendorKinds = strings.Fields(`
	6wind_vsr arista_ceos arista_veos arrcus_arcos aruba_aoscx border0 c8000 ceos checkpoint_cloudguard ciena_saos
	cisco_asav cisco_c8000 cisco_c8000v cisco_cat9kv cisco_csr1000v cisco_ftdv cisco_iol cisco_n9kv cisco_sdwan
	cisco_vios cisco_xrd cisco_xrd_vrouter cisco_xrv cisco_xrv9k cjunosevolved crpd cumulus_cvx cvx dell_ftosv
	dell_sonic f5_bigip-ve fdio_vpp fortinet_fortigate freebsd huawei_vrp ipinfusion_ocnos juniper_cjunosevolved
	juniper_crpd juniper_csrx juniper_vjunosevolved juniper_vjunosrouter juniper_vjunosswitch juniper_vmx
	juniper_vqfx juniper_vsrx mikrotik_ros nokia_srlinux nokia_sros nokia_srsim nvidia_cumulusvx openbsd openwrt
	paloalto_panos plvision_sonic rare sonic-vm sonic-vs srl veesix_osvbng vr-aoscx vr-arista_veos vr-aruba_aoscx
	vr-ciena_saos vr-cisco_csr1000v vr-cisco_n9kv vr-cisco_xrv vr-cisco_xrv9k vr-csr vr-dell_ftosv vr-ftosv
	vr-juniper_vmx vr-juniper_vqfx vr-juniper_vsrx vr-mikrotik_ros vr-n9kv vr-nokia_sros vr-paloalto_panos vr-pan
	vr-ros vr-sros vr-veos vr-vmx vr-vqfx vr-vsrx vr-xrv vr-xrv9k vyosnetworks_vyos xrd`)

// clabEndSystems are kinds that do not route: where all kinds become routers, they become hosts.
var clabEndSystems = []string{"ext-container", "generic_vm", "k8s-kind", "keysight_ixia-c-one", "ostinato",
	"spirent_stc"}

// find gives what replaces a kind; it is empty where the table says nothing. AllKinds does not replace a kind that
// containerlab does not have: that is a misspelt one.
func (t KindTable) find(kind string) string {
	if what, ok := t[kind]; ok {
		return what
	}
	what := t[AllKinds]
	_, starts := bootOf(kind)
	switch {
	case what == AsImage && !starts:
		return ""
	case contains(clabEndSystems, kind):
		if what == AsFRR || what == AsBIRD {
			return AsHost
		}
		return what
	case contains(ClabVendorKinds, kind):
		return what
	}
	return ""
}

// ParseKinds reads a table that a user wrote:
//
//	kinds:
//	  nokia_srlinux: frr
//	  keysight_ixia-c-one: host
//	  all: bird
func ParseKinds(file string, data []byte) (KindTable, topology.Diagnostics) {
	r := &report{file: file}
	root := readYAML(r, data)
	table := KindTable{}
	if r.want(root, yamltree.Map, "a table of kinds") {
		r.knownKeys(root, "a table of kinds", "kinds")
		kinds := root.Field("kinds")
		r.want(kinds, yamltree.Map, "kinds")
		for _, f := range kinds.Entries {
			what := r.str(f.Value, "kinds."+f.Key)
			if !contains(Replacements, what) {
				r.fail(f.Value.Position, diagnostic.SuggestOr(what, Replacements),
					"kind %s cannot become %q", f.Key, what)
			}
			table[f.Key] = what
		}
	}
	if r.wrong {
		return nil, r.found
	}
	return table, r.found
}

// isOurs reports whether Pergola chooses the node's addresses.
func (n *clabNode) isOurs() bool { return n.as == AsFRR || n.as == AsBIRD || n.as == AsHost }

// runs reports whether the node has processes.
func (n *clabNode) runs() bool {
	return n.isOurs() || n.isContainer()
}

// isContainer reports whether the node runs an image.
func (n *clabNode) isContainer() bool {
	return n.as == AsLinux || n.as == AsImage || n.as == "" && n.kind == kindLinux
}

// Keys of replaced nodes that stay.
var clabKeptKeys = []string{"kind", "group", "labels", "image"}

// replace makes a node of ours of one whose kind the table replaces. What the vendor's image would have read is left
// out. A card of a router in several containers (network-mode: container:NODE) is a part of that node.
func (c *clab) replace(n *clabNode, out *topology.Node) {
	mode := n.find("network-mode")
	if parent, ok := strings.CutPrefix(mode.Text, "container:"); ok && parent != n.name && c.hasNode(parent) {
		n.partOf = parent
		c.leaveAt(n.name, "network-mode: container", mode.Position,
			lack{changesTraffic, "they and the node that they name are one node here"})
		return
	}
	c.leaveAt(n.name, "kind "+n.kind, c.kindOf(n).Position, lack{changesTraffic, map[string]string{
		AsFRR: "a router with FRR is in its place", AsBIRD: "a router with BIRD is in its place",
		AsHost: "a host is in its place", AsSwitch: "a switch is in its place"}[n.as]})
	switch n.as {
	case AsFRR, AsBIRD:
		out.Kind, out.Daemon = slice.Router, slice.Daemon(n.as)
		c.route(out)
		c.loopbacks(c.renamed[n.name], out)
	case AsHost:
		out.Kind = slice.Host
	case AsSwitch:
		out.Kind = slice.Switch
	}
	c.eachKey(n, func(f yamltree.Entry) {
		if !contains(clabKeptKeys, f.Key) {
			c.leave(n.name, f, weightOfReplaced(f.Key))
		}
	})
}

func (c *clab) hasNode(name string) bool {
	_, ok := c.root.Field("nodes").Get(name)
	return ok
}

// firstPrivateAS is the first number for private use of four octets (RFC 6996).
const firstPrivateAS = 4_200_000_000

// route gives a router the protocols that the options name. With BGP alone, each router is an AS of its own, as in a
// fabric (RFC 7938); with an interior protocol beside it, all are one AS.
func (c *clab) route(out *topology.Node) {
	for _, p := range c.opt.Routing {
		out.Routing = append(out.Routing, string(p))
	}
	if slices.Contains(c.opt.Routing, slice.BGP) {
		out.AS = firstPrivateAS
		if len(c.opt.Routing) == 1 {
			out.AS += uint32(c.routers)
		}
	}
	c.routers++
}

// Pools of loopbacks: those of package resolve, which chooses none here, because own configurations of other routers
// must not get any.
var loopbackPools = map[int][]netip.Prefix{32: address.Prefixes("10.192.0.0/10"),
	128: address.Prefixes("fd50:6572:676f:ffff::/96")}

func (c *clab) loopbacks(name string, out *topology.Node) {
	for _, bits := range slices.Sorted(maps.Keys(loopbackPools)) {
		if p := address.Choose(loopbackPools[bits], bits, "loopback "+name, c.used); p.IsValid() {
			c.used.Insert(p)
			out.Loopbacks = append(out.Loopbacks, p.Addr().String())
		}
	}
}

// badKind is a kind that is not supported, with its nodes.
type badKind struct {
	at    position
	nodes []string
}

// unsupported notes a node's kind, to be reported once for all nodes of the kind.
func (c *clab) unsupported(n *clabNode) {
	c.wrong = true
	if n.kind == "" {
		c.fail(n.at.Position, "write kind: linux, or name it under defaults:", "node %q has no kind", n.name)
		return
	}
	if c.badKinds[n.kind] == nil {
		c.badKinds[n.kind] = &badKind{at: c.kindOf(n).Position}
	}
	c.badKinds[n.kind].nodes = append(c.badKinds[n.kind].nodes, n.name)
}

// sumKinds reports the kinds that are not supported, with the command that helps.
func (c *clab) sumKinds() {
	for _, kind := range slices.Sorted(maps.Keys(c.badKinds)) {
		bad := c.badKinds[kind]
		nodes := listed(bad.nodes, "node")
		if !contains(ClabVendorKinds, kind) && !contains(clabEndSystems, kind) {
			known := slices.Concat(ClabKinds, ClabVendorKinds, clabEndSystems)
			hint := diagnostic.Suggest(kind, known)
			if hint == "" {
				hint = c.helps(kind, AsFRR)
			}
			c.fail(bad.at, hint, "%s: kind %q is not known", nodes, kind)
			continue
		}
		are := "is"
		if len(bad.nodes) > 1 {
			are = "are"
		}
		what := AsFRR
		if contains(clabEndSystems, kind) {
			what = AsHost
		}
		if _, starts := bootOf(kind); starts {
			c.fail(bad.at, c.helps(kind, what)+", or with the vendor's image --kind "+kind+"="+AsImage,
				"%s %s of kind %s: say what is in its place", nodes, are, kind)
			continue
		}
		c.fail(bad.at, c.helps(kind, what), "%s %s of kind %s, whose image does not run here", nodes, are, kind)
	}
}

// unusedKinds warns of replacements of kinds that neither the file nor containerlab has: those are misspelt.
func (c *clab) unusedKinds() {
	var here []string
	for _, n := range c.nodes {
		here = append(here, n.kind)
	}
	known := slices.Concat(here, ClabKinds, ClabVendorKinds, clabEndSystems, []string{AllKinds})
	for _, kind := range slices.Sorted(maps.Keys(c.opt.Kinds)) {
		if !contains(known, kind) {
			c.warn(position{}, diagnostic.Suggest(kind, here),
				"no node is of kind %s, which is to be replaced", kind)
		}
	}
}

// helps is the command that replaces a kind.
func (c *clab) helps(kind, what string) string {
	return fmt.Sprintf("pergola up --kind %s=%s %s", kind, what, c.report.file)
}

// startsHere says, as an error, that a kind has no container that can start here.
func (c *clab) startsHere(n *clabNode) bool {
	if _, ok := bootOf(n.kind); ok {
		return true
	}
	c.fail(c.kindOf(n).Position, "kinds that can: "+strings.Join(slices.Sorted(maps.Keys(boots)), ", "),
		"node %q of kind %s cannot run its image: it is no container that starts here", n.name, n.kind)
	return false
}

// listed names some of a list: node a, nodes a and b, nodes a, b, c and 4 others.
func listed(names []string, noun string) string {
	const most = 3
	var text string
	switch n := len(names); {
	case n == 1:
		return noun + " " + names[0]
	case n <= most+1:
		text = strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	default:
		text = fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), n-most)
	}
	return wording.Plural(noun) + " " + text
}
