package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/rootless"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Rootless is the platform of a machine where the agent is an ordinary user's, in namespaces of its own (package
// rootless): package wire without programs of eBPF.
type Rootless struct {
	StateDir string
	Log      *slog.Logger // nil: nowhere
}

// ErrRootless is the error of what an ordinary user's host does not have.
var ErrRootless = errors.New("this host is an ordinary user's, without root's rights (`sudo pergola up` has them)")

// plainNetwork is a host network of which only a Network is used: it has no fast path and what stands on one. Its
// gateway leads to the namespace that pasta connects with the machine's network.
type plainNetwork struct {
	Network
	exit
}

// Close implements Network.
func (n *plainNetwork) Close() error { return errors.Join(n.gateway.Close(), n.Network.Close()) }

// OpenNetwork implements Platform.
func (p Rootless) OpenNetwork(ctx context.Context, deleted, _ func()) (Network, error) {
	s, err := wire.Open(ctx, wire.Config{StateDir: p.StateDir, Plain: true, Deleted: deleted, Log: p.Log})
	if err != nil {
		return nil, err // no typed nil
	}
	return &plainNetwork{s, exit{outside.New(p.StateDir, nil, p.Log)}}, nil
}

// HasNetwork implements Platform.
func (p Rootless) HasNetwork() bool { return wire.Present(p.StateDir) }

// RemoveNetwork implements Platform.
func (p Rootless) RemoveNetwork(ctx context.Context) error {
	return errors.Join(outside.Remove(p.StateDir), wire.Remove(ctx, p.StateDir))
}

// HaveNetem implements Platform.
func (Rootless) HaveNetem() error { return wire.HaveNetem() }

// HaveHTB implements Platform.
func (Rootless) HaveHTB() error { return wire.HaveHTB() }

// HaveNAT implements Platform.
func (Rootless) HaveNAT() error {
	if err := rootless.Connected(); err != nil {
		return fmt.Errorf("no connections with the outside: %w", err)
	}
	return outside.HaveNAT()
}

// HavePorts implements Platform.
func (Rootless) HavePorts() error { return lacks("ports of this machine") }

// HaveBind implements Platform.
func (Rootless) HaveBind() error { return lacks("ports of this machine that processes reserve") }

// HaveFastPath implements Platform.
func (Rootless) HaveFastPath() error {
	return lacks("packet programs, label-switched paths, classes and policers")
}

// HaveUplink implements Platform.
func (Rootless) HaveUplink() error { return lacks("links to this machine's own network") }

// HaveLimits implements Platform.
func (Rootless) HaveLimits() error { return lacks("limits of processor time, memory and processes") }

// lacks words what there is not.
func lacks(what string) error { return fmt.Errorf("no %s: %w", what, ErrRootless) }

// Reservable implements Platform.
func (Rootless) Reservable() slice.Reserve { return slice.Reserve{} }

// TryProgram implements Platform.
func (Rootless) TryProgram(string, []byte) error { return lacks("packet programs") }

// Interfaces implements Platform: tunnels use none.
func (Rootless) Interfaces() ([]hosts.Underlay, error) { return nil, nil }

// WatchInterfaces implements Platform.
func (Rootless) WatchInterfaces(func()) (stop func() error, err error) {
	return func() error { return nil }, nil
}

// PathMTU implements Platform.
func (Rootless) PathMTU(netip.Addr, netip.Addr) (bytes int, err error) {
	return 0, lacks("paths to other machines")
}

// NetNS implements Platform.
func (Rootless) NetNS(pid int) uint64 { return Root{}.NetNS(pid) }
