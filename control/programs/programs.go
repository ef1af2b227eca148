// Package programs checks the packet programs that slices bring, as far as no kernel is needed: what package
// datapath/program says of objects and filters, in the words and with the places of topologies.
package programs

import (
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/wording"
)

// Check says what is wrong with the programs and filters of a slice. The diagnostics have paths, and no positions.
func Check(s *slice.Slice) (found topology.Diagnostics) {
	objects := map[string]*program.Object{} // nil: refused
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Program == nil {
			continue
		}
		at := diagnostic.InNode(n.Name)
		o, known := objects[n.Program.Object]
		if !known {
			var err error
			if o, err = program.Read(n.Program.Name, s.Programs[n.Program.Object]); err != nil {
				found = append(found, Refused(at.At("program").String(), err))
			}
			objects[n.Program.Object] = o
		}
		if o == nil {
			continue
		}
		if err := checkMemory(o, n.Reserve); err != nil {
			found = append(found, topology.Diagnostic{
				Path: at.At("program").String(), Message: err.Error(),
				Hint: fmt.Sprintf("write reserve: {memory: %dKiB}", (o.Memory.Size()+1<<10-1)>>10),
			})
		}
		if err := checkFilters(o, n.Program, n.Reserve); err != nil {
			d := topology.Diagnostic{Path: at.At("filters").String(), Message: err.Error()}
			found = append(found, d)
		}
	}
	return found
}

// Refused words what package datapath/program says of a program that stands at a path.
func Refused(at string, err error) topology.Diagnostic {
	d := topology.Diagnostic{Path: at, Message: err.Error()}
	var refused *program.RefusedError
	var compile *program.CompileError
	switch {
	case errors.As(err, &refused):
		d.Hint = refused.Advice
	case errors.As(err, &compile):
		d.Message = fmt.Sprintf("%v:\n%s", err, compile.Output)
	}
	return d
}

// checkMemory wants a program that declares no more memory than its node may have.
func checkMemory(o *program.Object, r slice.Reserve) error {
	if size := int64(o.Memory.Size()); size > r.MemoryBound() {
		return fmt.Errorf("%s declares %d bytes of memory, and the node may have %d", o.Name, size,
			r.MemoryBound())
	}
	return nil
}

// checkFilters wants filters that name fields of the program's key, and interfaces of its node, and no more of them
// than it has reserved.
func checkFilters(o *program.Object, p *slice.PacketProgram, r slice.Reserve) error {
	if r.Filters > 0 && len(p.Filters) > r.Filters {
		return fmt.Errorf("there are %d filters, and %d are reserved", len(p.Filters), r.Filters)
	}
	filters, err := program.ParseFilterList(p.Filters, o.Key)
	if err != nil {
		return err
	}
	has := len(p.Interfaces)
	for i, f := range filters {
		named := f.Result.Interface
		for n := range uint32(slice.MaxProgramInterfaces + 1) {
			if f.Result.Verdict == program.Flood && f.Result.Flood>>n&1 != 0 {
				named = max(named, n)
			}
		}
		if int(named) > has {
			return fmt.Errorf("filter %q: there is no interface %d: the node has %s", p.Filters[i], named,
				wording.Count(has, "interface"))
		}
	}
	return nil
}
