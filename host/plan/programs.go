package plan

import (
	"fmt"
	"slices"
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
		SlowPath: n.Program.SlowPath, Reserve: n.Reserve, UDP: b.udpPorts(n.Program),
		Digest: Digest(n.Program.Object, n.Program.Filters, n.Program.SlowPath),
	}
	reserve := n.Reserve
	if reserve.Queues, reserve.Buffer = 0, 0; reserve != (slice.Reserve{}) { // queues are those of links
		p.Digest = Digest(p.Digest, reserve)
	}
	if len(p.UDP) > 0 {
		p.Digest = Digest(p.Digest, p.UDP)
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

// udpPorts lists a program's UDP ports, at this host's address. Where that is no IPv4 address, nothing comes to them.
func (b *builder) udpPorts(p *slice.PacketProgram) (all []UDPPort) {
	for _, u := range p.UDP {
		all = append(all, UDPPort{
			Interface: slices.Index(p.Interfaces, u.Interface) + 1, Local: b.Address.Unmap(), UDPPort: u,
		})
	}
	return all
}

// HasUDPPorts reports whether a packet program of this host has a UDP port.
func HasUDPPorts(at Place, inputs []Input) bool {
	return slices.ContainsFunc(inputs, func(in Input) bool {
		return slices.ContainsFunc(in.Spec.Nodes, func(n slice.Node) bool {
			return at.Owns(&n) && n.Program != nil && len(n.Program.UDP) > 0
		})
	})
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
