package wire

import (
	"context"
	"iter"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/kernel/netns"
)

// FIB is what the fast path knows of routers' kernels. It stays the host network's, which must be open as long as it is
// used.
func (s *HostNetwork) FIB() fib.Maps { return s.data.FIB() }

// Nodes is what packet programs of nodes are put into (package node). It stays the host network's, as FIB.
func (s *HostNetwork) Nodes() node.Config { return s.data.Nodes() }

// Hold keeps indexes of ports from being given to new ones, in place of what it kept before. Whoever knows ports by
// their indexes, as the mirror does, holds them until it has let go: an index must not come to mean the port of another
// node, or slice, behind its back.
func (s *HostNetwork) Hold(indexes map[int]bool) { s.held.Store(&indexes) }

func (s *HostNetwork) addVeth(v veth) (index int, err error) {
	return s.nl.addVeth(v, func(index int) bool {
		held := s.held.Load()
		return held != nil && (*held)[index]
	})
}

// Router gives the number under which the fast path knows the node that a port belongs to; 0: it does not know it.
func (s *HostNetwork) Router(port int) (uint32, error) {
	return s.data.Router(port)
}

// Punts counts the frames that the fast path handed to a router's kernel, by reason, since SetPunts.
func (s *HostNetwork) Punts(ctx context.Context, router uint32) (map[string]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.data.Punted(router)
}

// SetPunts begins to count from these: a number may have been another router's, and the router may have had another.
func (s *HostNetwork) SetPunts(router uint32, counts map[string]uint64) error {
	return s.data.SetPunted(router, counts)
}

// SetLabel says what a router of a label space does with frames that carry a label.
func (s *HostNetwork) SetLabel(space, label uint32, n datapath.NHLFE) error {
	return s.data.SetLabel(space, label, n)
}

// SetFTN says what it does with frames that a route gives an FTN.
func (s *HostNetwork) SetFTN(space, ftn uint32, n datapath.NHLFE) error {
	return s.data.SetFTN(space, ftn, n)
}

// DeleteLabel forgets a label.
func (s *HostNetwork) DeleteLabel(space, label uint32) error { return s.data.DeleteLabel(space, label) }

// DeleteFTN forgets an FTN.
func (s *HostNetwork) DeleteFTN(space, ftn uint32) error { return s.data.DeleteFTN(space, ftn) }

// AllLabels yields what is set, of all label spaces, and as the last an error, if there was one.
func (s *HostNetwork) AllLabels() iter.Seq2[datapath.LabelEntry, error] { return s.data.AllLabels() }

// Reserved reads the reservation of an FTN, and what was measured by it.
func (s *HostNetwork) Reserved(space, ftn uint32) (datapath.Reserved, error) {
	return s.data.Reserved(space, ftn)
}

// SetLabelRules writes which frames get labels by what they are: see datapath.DataPath.
func (s *HostNetwork) SetLabelRules(space uint32, rules []datapath.LabelRule) error {
	return s.data.SetLabelRules(space, rules)
}

// LabelRules reads what SetLabelRules has written.
func (s *HostNetwork) LabelRules() (map[uint32][]datapath.LabelRule, error) {
	return s.data.LabelRules()
}

// ReadUnwalked begins to read packets with labels that routers could not send on.
func (s *HostNetwork) ReadUnwalked() (*datapath.UnwalkedReader, error) { return s.data.ReadUnwalked() }

// SendOn makes an IP packet go on along the LSP in the place of such a one.
func (s *HostNetwork) SendOn(u *datapath.Unwalked, ip []byte) error {
	return netns.In(s.ns, func() error { return s.data.SendOn(u, ip) })
}

// SetBestEffort says which share of each core frames without a reservation may have at line cards; 0: they are treated
// as all others. See OpenUnderlay for what goes with it at interfaces of the machine.
func (s *HostNetwork) SetBestEffort(share float64) error { return s.data.SetBestEffort(share) }

// BestEffort gives the share that SetBestEffort was told last.
func (s *HostNetwork) BestEffort() (share float64, err error) { return s.data.BestEffort() }

// ReservedWork reads what line cards did with frames that have a reservation.
func (s *HostNetwork) ReservedWork() (datapath.ReservedWork, error) { return s.data.ReservedWork() }
