package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/unit"
)

// makeLinks works the defaults into the links and finds their ends. A link with an end that does not exist is
// reported and left out.
func (r *resolver) makeLinks() {
	names := map[string]int{}
	ordinals := map[string]int{}
	for i, in := range r.t.Links {
		l := &link{index: i, at: diagnostic.InLink(i), in: in, name: in.Name}
		attributes := reflect.ValueOf(&l.LinkAttributes).Elem()
		if d := r.t.Defaults; d != nil && d.Link != nil {
			attributes.Set(reflect.ValueOf(*d.Link))
		}
		merge(attributes, reflect.ValueOf(in.LinkAttributes))
		if in.Name != "" {
			if first, twice := names[in.Name]; twice {
				r.Add(l.at.At("name"), "", "link name %q is taken by links[%d]", in.Name, first)
			}
			names[in.Name] = i
			r.checkLinkName(l)
		}
		if !r.joinEnds(l) {
			continue
		}
		l.key = in.Name
		if l.key == "" {
			l.key = l.identity()
			ordinals[l.key]++
			if k := ordinals[l.key]; k > 1 {
				l.key = fmt.Sprintf("%s#%d", l.key, k)
			}
		}
		r.links = append(r.links, l)
	}
}

func (r *resolver) checkLinkName(l *link) {
	bad := func(c rune) bool { return c <= ' ' || c == 0x7f || c == '/' || c == '"' || c == '\'' }
	if len(l.name) > 255 || strings.ContainsFunc(l.name, bad) {
		r.Add(l.at.At("name"), "no blanks, quotes or slashes, at most 255 bytes",
			"%q is not a name of a link", l.name)
	}
}

// identity names a link without a name by what joins it: two sites, or for a LAN the first of its ends, so that
// a LAN stays itself when it grows.
func (l *link) identity() string {
	if l.lan() {
		return "lan " + string(l.in.Ends[0])
	}
	ends := []string{string(l.in.Ends[0]), string(l.in.Ends[1])}
	slices.Sort(ends)
	return strings.Join(ends, "--")
}

// joinEnds makes the link's ports. It reports false where one cannot be made.
func (r *resolver) joinEnds(l *link) bool {
	if len(l.in.Ends) < 2 {
		r.Add(l.at.At("ends"), "write [a, b]", "a link joins two nodes or more, this one %d", len(l.in.Ends))
		return false
	}
	good := true
	seen := map[string]bool{}
	for i, end := range l.in.Ends {
		at := l.at.At("ends").Item(i)
		n := r.byName[end.Node()]
		switch {
		case n == nil:
			r.unknownNode(at, end.Node())
			good = false
			continue
		case seen[n.name]:
			r.Add(at, "", "the link joins %q to itself", n.name)
			good = false
			continue
		case strings.Contains(string(end), ":") && !r.checkInterface(at, n, end.Interface()):
			good = false
			continue
		}
		seen[n.name] = true
		l.ends = append(l.ends, &port{node: n, link: l, at: at, name: end.Interface()})
	}
	if !good {
		return false
	}
	for _, p := range l.ends {
		p.node.interfaces = append(p.node.interfaces, p)
		if p.name != "" {
			p.node.byName[p.name] = p
		}
	}
	return true
}

// interfacePattern is stricter than the kernel, which takes anything but slashes, colons and blanks.
var interfacePattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._@-]*$`)

// checkInterface wants a name that the kernel takes and that the node does not have yet.
func (r *resolver) checkInterface(at *diagnostic.Path, n *node, name string) bool {
	switch {
	case name == "":
		r.Add(at, "write "+n.name+", or "+n.name+":eth1", "the interface has no name")
	case len(name) > 15:
		r.Add(at, "", "interface name %q has %d bytes: at most 15", name, len(name))
	case !interfacePattern.MatchString(name):
		r.Add(at, "letters, digits, . _ - and @", "%q is not a name of an interface", name)
	case name == "lo" || name == "all" || name == "default":
		r.Add(at, "", "interface name %q has a meaning of its own in Linux", name)
	case n.byName[name] != nil:
		r.Add(at, "", "interface %s:%s is used twice, first in links[%d]", n.name, name,
			n.byName[name].link.index)
	default:
		return true
	}
	return false
}

// nameInterfaces chooses the names of interfaces and links that the file leaves open, and numbers the ports.
func (r *resolver) nameInterfaces() {
	r.matchLinks()
	for _, n := range r.nodes {
		if n.kind == slice.Uplink {
			for _, p := range n.interfaces {
				if p.name == "" {
					r.Add(p.at, "write "+n.name+":NAME",
						"the interface of an uplink appears on the machine "+
							"itself: it needs a name")
				}
			}
		}
		n.keepNames()
		n.chooseNames()
	}
	for _, n := range r.nodes {
		for _, name := range slices.Sorted(maps.Keys(n.own.Interfaces)) {
			p := n.byName[name]
			if p == nil {
				r.Add(diagnostic.InInterface(n.name, name),
					diagnostic.SuggestOr(name, slices.Sorted(maps.Keys(n.byName))),
					"no link ends at %s:%s", n.name, name)
				continue
			}
			p.in = n.own.Interfaces[name]
		}
	}
	r.nameLinks()
	r.numberPorts()
}

// keepNames gives interfaces the names that they have in the running version.
func (n *node) keepNames() {
	for _, p := range n.interfaces {
		if p.prev != nil && p.name == "" && n.byName[p.prev.Name] == nil {
			p.name = p.prev.Name
			n.byName[p.name] = p
		}
		if p.prev != nil && p.name != p.prev.Name {
			p.prev = nil
		}
	}
}

// chooseNames calls the remaining interfaces eth1, eth2 and so on, as containerlab does.
func (n *node) chooseNames() {
	next := 1
	for _, p := range n.interfaces {
		for p.name == "" {
			if name := fmt.Sprintf("eth%d", next); n.byName[name] == nil {
				p.name = name
				n.byName[name] = p
			}
			next++
		}
	}
}

// nameLinks calls links after their ends: a:eth1--b:eth1, and a LAN after its first end: a:eth1--lan. A running LAN
// keeps its name while it has that end.
func (r *resolver) nameLinks() {
	taken := map[string]*link{}
	for _, l := range r.links {
		if l.in.Name != "" {
			taken[l.name] = l
		}
	}
	for _, l := range r.links {
		if l.in.Name != "" {
			continue
		}
		if l.lan() {
			l.name = l.lanName()
		} else {
			ends := []string{l.ends[0].String(), l.ends[1].String()}
			slices.Sort(ends)
			l.name = strings.Join(ends, "--")
		}
		if other := taken[l.name]; other != nil {
			r.Add(l.at, "give one of them another name", "links[%d] has the name %q, which is this link's",
				other.index, l.name)
		}
		taken[l.name] = l
	}
}

func (l *link) lanName() string {
	const suffix = "--lan"
	if l.prev != nil {
		for _, p := range l.ends {
			if l.prev.Name == p.String()+suffix {
				return l.prev.Name
			}
		}
	}
	return l.ends[0].String() + suffix
}

// numberPorts keeps the numbers of ports that exist and gives new ones numbers that no running port has, also not
// one that is about to go.
func (r *resolver) numberPorts() {
	used := map[uint16]bool{0: true}
	last := 0
	known := map[string]uint16{}
	if r.prev != nil {
		for _, n := range r.prev.Nodes {
			for _, i := range n.Interfaces {
				known[n.Name+":"+i.Name] = i.Port
				used[i.Port] = true
				last = max(last, int(i.Port))
			}
		}
	}
	for _, l := range r.links {
		for _, p := range l.ends {
			if p.number = known[p.String()]; p.number != 0 {
				continue
			}
			if len(used) > slice.MaxInterfaces {
				r.Add(l.at, "", "more than %d interfaces: one network cannot have more",
					slice.MaxInterfaces)
				return
			}
			for used[uint16(last)] {
				last = last%slice.MaxInterfaces + 1
			}
			p.number = uint16(last)
			used[p.number] = true
		}
	}
}

// shapeLinks works out what each end does to its frames.
func (r *resolver) shapeLinks() {
	for _, l := range r.links {
		byEnd := map[string]*port{}
		for _, p := range l.ends {
			byEnd[p.node.name], byEnd[p.String()] = p, p
		}
		for _, key := range slices.Sorted(maps.Keys(l.in.From)) {
			if byEnd[key] == nil {
				r.Add(l.at.At("from").At(key), diagnostic.SuggestOr(key, endNames(l)),
					"%q is not an end of this link", key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(l.in.Addresses)) {
			if byEnd[key] == nil {
				r.Add(l.at.At("addresses").At(key), diagnostic.SuggestOr(key, endNames(l)),
					"%q is not an end of this link", key)
			}
		}
		for _, p := range l.ends {
			p.shape = r.shape(l, p)
		}
	}
}

// endNames are the nodes that a link joins.
func endNames(l *link) []string {
	names := make([]string, len(l.ends))
	for i, p := range l.ends {
		names[i] = p.node.name
	}
	return names
}

// shape is what happens to the frames that a port sends.
func (r *resolver) shape(l *link, p *port) slice.Shape {
	in, at := l.Shape, l.at
	for _, key := range []string{p.node.name, p.String()} {
		if from, ok := l.in.From[key]; ok {
			if from.Delay != "" && from.Jitter == "" {
				in.Jitter = "" // the other direction's
			}
			merge(reflect.ValueOf(&in).Elem(), reflect.ValueOf(from))
			at = l.at.At("from").At(key)
		}
	}
	out := slice.Shape{Queue: in.Queue, Police: r.policer(in.Police, l, p, at.At("police"))}
	out.Rate = checked(in.Rate.Bits())
	out.Delay = checked(in.Delay.Duration())
	out.Jitter = checked(in.Jitter.Duration())
	out.Loss = checked(in.Loss.Value())
	if p.node.kind != slice.Switch {
		out.Classes = r.classes(in, out.Rate, at.At("classes"))
	} else if at != l.at && len(l.in.From[p.node.name].Classes)+len(l.in.From[p.String()].Classes) > 0 {
		r.Add(at.At("classes"), "write them at the other end", "what a switch sends has no classes")
	}
	out.Queues = r.queuesOf(in, l, p, out.Rate, at)
	switch {
	case out.Delay > unit.MaxDelay:
		r.Add(at.At("delay"), "", "delay %s is out of range: at most %s", in.Delay, unit.MaxDelay)
	case out.Jitter > out.Delay:
		r.Add(at.At("jitter"), "", "jitter %s is greater than the delay, %s", in.Jitter, cmp.Or(in.Delay, "0s"))
	}
	return out
}

// policer reads what bounds the frames of a port. Between two switches no program of the data path meets them.
func (r *resolver) policer(in *file.Policer, l *link, p *port, at *diagnostic.Path) (out slice.Policer) {
	if in == nil {
		return out
	}
	out.Rate = checked(in.Rate.Bits())
	out.Burst = checked(in.Burst.Count())
	switch {
	case in.Rate == "":
		r.Add(at, "write police: 10Mbit, or police: {rate: 10Mbit, burst: 64KiB}", "the policer has no rate")
	case out.Rate == 0:
		out.Burst = 0
	case slice.CanPolice(p.node.kind, l.lan(), l.kinds()):
	default:
		r.Add(at, "police the links of the nodes, and write police: 0 here",
			"what a switch sends to another switch, or to a LAN, is not policed")
	}
	return out
}

// kinds are those of the nodes that the link joins.
func (l *link) kinds() []slice.Kind {
	all := make([]slice.Kind, len(l.ends))
	for i, p := range l.ends {
		all[i] = p.node.kind
	}
	return all
}
