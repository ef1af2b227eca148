package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

// addProgram adds a node's packet program. It is amended in place, so that no frame meets a node without a program: a
// newer version, other filters, ports that were made anew, links that are cut. It ends with its sliver.
func (b *builder) addProgram(n *slice.Node, sliverKey reconcile.Key, ports []reconcile.Key) {
	p := Program{
		File: n.Program.Name, Object: b.Spec.Programs[n.Program.Object], Filters: n.Program.Filters,
		Digest: Digest(n.Program.Object, n.Program.Filters),
	}
	for _, name := range n.Program.Interfaces {
		device := ""
		if i := n.Interface(name); i != nil && b.wired[slice.PortName(b.Spec.ID, i.Port)] {
			device = slice.PortName(b.Spec.ID, i.Port)
		}
		p.Ports = append(p.Ports, device)
	}
	needs := append([]reconcile.Key{HostNetKey, sliverKey}, ports...)
	b.add(reconcile.Resource{
		Key: b.key(KindProgram, n.Name), Digest: ProgramDigest(p.Digest, p.Ports), Amend: true, Needs: needs,
	}, p)
}

// ProgramDigest covers a program and its ports, by their devices; "" stands for a port that is not there, or down.
func ProgramDigest(program string, ports []string) string {
	return Digest(program, strings.TrimRight(strings.Join(ports, " "), " "))
}

// ProgramName names a node's program on this host.
func (id NodeID) ProgramName() string { return fmt.Sprintf("%d-%s", id.Slice, id.Node) }

// ParseProgramName is the reverse; ok is false where the name is none.
func ParseProgramName(name string) (id NodeID, ok bool) {
	number, node, ok := strings.Cut(name, "-")
	slice, err := strconv.ParseUint(number, 10, 16)
	return NodeID{Slice: uint16(slice), Node: node}, ok && err == nil && node != ""
}
