package resolve

import (
	"bytes"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// program writes out what a node of kind program runs. What the code may do is checked where there is a reader of
// objects: see control/programs.
func (r *resolver) program(n *node) *slice.PacketProgram {
	source, at := n.all.Program, n.at.At("program")
	if source == nil {
		r.Add(n.at, "write program: x.c, or x.o", "%q is of kind program, and names no program", n.name)
		return nil
	}
	r.checkSource(at, source)
	if size := len(source.Data); size > slice.MaxObject {
		r.Add(at, "", "the object has %d bytes, and may have %d", size, slice.MaxObject)
	}
	if count := len(n.interfaces); count > slice.MaxProgramInterfaces {
		r.Add(n.interfaces[slice.MaxProgramInterfaces].at, "put a second program node beside it",
			"%q has %d interfaces, and a packet program knows %d", n.name, count,
			slice.MaxProgramInterfaces)
	}
	p := &slice.PacketProgram{Name: source.Path, Filters: r.filters(n), UDP: r.udpPorts(n)}
	links, all := len(n.interfaces), len(n.interfaces)+len(p.UDP)
	if links <= slice.MaxProgramInterfaces && all > slice.MaxProgramInterfaces {
		r.Add(n.at.At("ports"), "put a second program node beside it",
			"%q has %d interfaces and UDP ports, and a packet program knows %d", n.name, all,
			slice.MaxProgramInterfaces)
	}
	if n.all.SlowPath != slice.SlowInterface {
		p.SlowPath = n.all.SlowPath
	}
	for _, i := range n.interfaces {
		p.Interfaces = append(p.Interfaces, i.name)
	}
	for _, u := range p.UDP {
		p.Interfaces = append(p.Interfaces, u.Interface)
	}
	if len(source.Data) > 0 {
		p.Object = slice.ObjectName(source.Data)
		if r.out.Programs == nil {
			r.out.Programs = map[string][]byte{}
		}
		r.out.Programs[p.Object] = source.Data
	}
	return p
}

// filters lists a program's filters: those of the topology and of files, in the order of the topology.
func (r *resolver) filters(n *node) (all []string) {
	for i, f := range n.all.Filters {
		at := n.at.At("filters").Item(i)
		switch {
		case f.Filter != "" && f.Source != nil:
			r.Add(at, "keep one of them", "filter and source both say what is looked up")
		case f.Source != nil:
			r.checkSource(at, f.Source)
			all = append(all, filterLines(f.Source.Data)...)
		case !strings.Contains(f.Filter, file.Arrow):
			r.Add(at, "write such as any -> punt, or the path of a file", "%q is no filter", f.Filter)
		default:
			all = append(all, filterLines([]byte(f.Filter))...)
		}
	}
	return all
}

// filterLines drops what is no filter: comments and empty lines.
func filterLines(text []byte) (all []string) {
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) > 0 {
			all = append(all, string(bytes.ToValidUTF8(line, []byte("?"))))
		}
	}
	return all
}
