package describe

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// Defaults of the file, which need not be written.
const (
	defaultTimeout = 5 * time.Second // of checks
	defaultHello   = 1               // seconds
	defaultDead    = 10              // times hello
	defaultMode    = 0o644
)

var levels = map[int]string{1: "1", 12: "1-2"} // 2 is the default

func (d *describer) node(n *slice.Node) file.Node {
	out := file.Node{Position: n.Position}
	out.Labels, out.Host, out.HostLabels = n.Labels, n.Placement.Host, n.Placement.Labels
	out.Reschedule = n.Placement.Reschedule
	for _, p := range n.Loopbacks {
		text := p.String()
		if p.IsSingleIP() {
			text = p.Addr().String()
		}
		out.Loopbacks = append(out.Loopbacks, text)
	}
	for i := range n.Interfaces {
		d.netInterface(&out, n, &n.Interfaces[i])
	}
	switch n.Kind {
	case slice.Switch, slice.Uplink:
		out.Kind = n.Kind
		return out
	case slice.Router:
		d.routing(&out, n)
	case slice.Host:
	case slice.Program:
		d.program(&out, n)
		out.Routes = routes(n.Routes)
	}
	d.sliver(&out, n)
	return out
}

func (d *describer) netInterface(out *file.Node, n *slice.Node, i *slice.Interface) {
	w := file.Interface{Addresses: prefixes(i.Addresses), Cost: i.Cost, Area: i.Area}
	if i.FixedMTU {
		w.MTU = i.MTU
	}
	if len(w.Addresses) > 0 || w.Cost != 0 || w.Area != "" || w.MTU != 0 {
		setInterface(out, i.Name, w)
	}
	if i.Reserve != 0 && n.Kind == slice.Program {
		if out.Reserve == nil {
			out.Reserve = &file.Reserve{}
		}
		if out.Reserve.Bandwidth == nil {
			out.Reserve.Bandwidth = map[string]file.Rate{}
		}
		out.Reserve.Bandwidth[i.Name] = file.RateOf(i.Reserve)
	}
}

func (d *describer) routing(out *file.Node, n *slice.Node) {
	out.AS = d.systems[n.Name]
	out.FastPath = n.FastPath
	r := n.Routing
	switch {
	case r == nil: // the kernel has the routes
		out.Routing, out.Routes = file.Strings{"none"}, routes(n.Routes)
		return
	case len(r.Config) > 0:
		out.Kind, out.Daemon, out.Routes = slice.Router, r.Daemon, routes(n.Routes)
		configure(n.Name, &out.Attributes, r.Config)
		out.Reflector = reflects(r)
		return
	}
	out.Daemon, out.Routes = r.Daemon, routes(r.Static)
	for _, p := range r.Protocols {
		out.Routing = append(out.Routing, string(p))
	}
	if r.Timers.Hello != 0 && r.Timers.Hello != defaultHello {
		out.Hello = file.DurationOf(time.Duration(r.Timers.Hello) * time.Second)
	}
	if r.Timers.Dead != defaultDead*r.Timers.Hello {
		out.Dead = file.DurationOf(time.Duration(r.Timers.Dead) * time.Second)
	}
	yes := true
	if r.Timers.FastHellos {
		out.FastHellos = &yes
	}
	if r.ISIS != nil && levels[r.ISIS.Level] != "" {
		out.ISIS = &file.ISIS{Level: levels[r.ISIS.Level]}
	}
	out.Reflector = reflects(r)
}

// reflects gives true of a route reflector; nil of others.
func reflects(r *slice.Routing) *bool {
	yes := true
	if r.BGP != nil && slices.ContainsFunc(r.BGP.Neighbors, func(b slice.BGPNeighbor) bool { return b.Client }) {
		return &yes
	}
	return nil
}

// configure gives a router files of its own, by their names.
func configure(node string, a *file.Attributes, files map[string][]byte) {
	a.Config = map[string]*file.Source{}
	for name, data := range files {
		a.Config[name] = source(Beside(node, name), data)
	}
}

func routes(all []slice.Route) (out []file.Route) {
	for _, r := range all {
		w := file.Route{To: r.To.String(), Interface: r.Interface, Blackhole: r.Blackhole}
		// Of IPv6, default needs a next hop to say so.
		if r.To.Bits() == 0 && (r.To.Addr().Is4() || r.Via.Is6()) {
			w.To = "default"
		}
		if r.Via.IsValid() {
			w.Via = r.Via.String()
		}
		out = append(out, w)
	}
	return out
}

func (d *describer) sliver(out *file.Node, n *slice.Node) {
	d.rootfs(out, n)
	out.Cmd, out.Env, out.Sysctls, out.Exec = n.Command, n.Env, n.Sysctls, n.Exec
	out.Args, out.User = n.Args, n.User
	if n.Stdin {
		out.Stdin = &n.Stdin
	}
	for _, w := range n.WaitFor {
		out.WaitFor = append(out.WaitFor, w.String())
	}
	if n.StartDelay != 0 {
		out.Delay = file.DurationOf(n.StartDelay)
	}
	out.CPU, out.PIDs = n.CPU, n.PIDs
	if n.CPUPeriod != 0 {
		out.CPUPeriod = file.DurationOf(n.CPUPeriod)
	}
	if n.Memory != 0 {
		out.Memory = bytesOf(n.Memory)
	}
	if n.Restart != slice.RestartAlways {
		out.Restart = n.Restart
	}
	for _, b := range n.Binds {
		text := b.Source + ":" + b.Target
		if b.ReadOnly {
			text += ":ro"
		}
		out.Binds = append(out.Binds, text)
	}
	for _, device := range n.Devices {
		out.Devices = append(out.Devices, device.String())
	}
	out.CapAdd = n.CapAdd
	for _, v := range n.Volumes {
		text := v.Name + ":" + v.Target
		if v.ReadOnly {
			text += ":ro"
		}
		out.Volumes = append(out.Volumes, text)
	}
	for _, f := range n.Files {
		if out.Files == nil {
			out.Files = map[string]file.File{}
		}
		out.Files[f.Path] = File(n.Name, f)
	}
	out.Outside = outside(n)
	d.ports(out, n)
}

func outside(n *slice.Node) *file.Outside {
	if !n.Outside && n.OutsideRate == 0 && n.OutsideReserve == 0 {
		return nil
	}
	out := &file.Outside{On: &n.Outside}
	if n.OutsideRate != 0 {
		out.Rate = file.PolicedRate(file.RateOf(n.OutsideRate))
	}
	if n.OutsideReserve != 0 {
		out.Reserve = file.PolicedRate(file.RateOf(n.OutsideReserve))
	}
	return out
}

// longestText is how many bytes of a file stand in the topology itself.
const longestText = 200

// File writes a file of a node: a short text in the topology, other data beside it.
func File(node string, f slice.File) (out file.File) {
	if len(f.Data) <= longestText && utf8.Valid(f.Data) {
		out.Content = string(f.Data)
	} else {
		out.Source = source(Beside(node, f.Path), f.Data)
	}
	if mode := cmp.Or(f.Mode, defaultMode); mode != defaultMode {
		out.Mode = fmt.Sprintf("%04o", mode)
	}
	return out
}

func (d *describer) rootfs(out *file.Node, n *slice.Node) {
	switch n.Rootfs.Kind {
	case slice.RootfsHost:
	case slice.RootfsRegistry:
		out.Image = n.Rootfs.Ref
	case slice.RootfsLayout:
		out.Image = "oci:" + n.Rootfs.Ref
	case slice.RootfsDir:
		out.Rootfs = &file.Source{Path: n.Rootfs.Ref}
	case slice.RootfsTar:
		out.Rootfs = &file.Source{Path: Archive(n.Rootfs.Ref), SHA256: n.Rootfs.Ref}
	}
}

// Archive is the path beside the topology of a root file system.
func Archive(sum string) string { return path.Join("rootfs", sum[:min(12, len(sum))]+".tar") }

// bytesOf writes an amount of memory.
func bytesOf(n int64) file.Bytes {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n%(1<<u.shift) == 0 {
			return file.Bytes(strconv.FormatInt(n>>u.shift, 10) + u.name)
		}
	}
	return file.Bytes(strconv.FormatInt(n, 10))
}

func (d *describer) ports(out *file.Node, n *slice.Node) {
	var udp []slice.UDPPort
	if n.Program != nil {
		udp = n.Program.UDP
	}
	for _, p := range n.Ports {
		isSame := func(u slice.UDPPort) bool { return u.Port == p.Port }
		if p.Protocol == slice.UDP && slices.ContainsFunc(udp, isSame) {
			continue
		}
		out.Ports = append(out.Ports, file.Port{Port: p.String()})
	}
	for _, u := range udp {
		w := file.Port{UDP: int(u.Port), Peers: prefixes(u.Peers)}
		if u.Interface != fmt.Sprintf("udp%d", u.Port) {
			w.Interface = u.Interface
		}
		if u.Rate != slice.DefaultUDPRate {
			w.Rate = file.RateOf(u.Rate)
		}
		out.Ports = append(out.Ports, w)
	}
	if n.BindPorts != (slice.Ports{}) {
		out.Ports = append(out.Ports, file.Port{Bind: file.PortsRange(n.BindPorts.String())})
	}
}

func (d *describer) program(out *file.Node, n *slice.Node) {
	p := n.Program
	name := strings.TrimSuffix(path.Base(p.Name), path.Ext(p.Name))
	out.Program = source(path.Join("programs", cmp.Or(name, "program")+"-"+p.Object[:min(12, len(p.Object))]+".o"),
		d.s.Programs[p.Object])
	out.SlowPath = p.SlowPath
	for _, f := range p.Filters {
		out.Filters = append(out.Filters, file.Filter{Filter: f})
	}
	r := n.Reserve
	if r == (slice.Reserve{}) {
		return
	}
	if out.Reserve == nil {
		out.Reserve = &file.Reserve{}
	}
	out.Reserve.FastPath, out.Reserve.Filters, out.Reserve.Masks = r.FastPath, r.Filters, r.Masks
	out.Reserve.Queues = r.Queues
	if r.Memory != 0 {
		out.Reserve.Memory = bytesOf(r.Memory)
	}
	if r.Buffer != 0 {
		out.Reserve.Buffer = bytesOf(r.Buffer)
	}
}
