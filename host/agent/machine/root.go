package machine

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Root is the platform of a machine where the agent has root's rights: package wire.
type Root struct {
	StateDir string       // of what must be found again: runtime state, gone after a reboot
	Log      *slog.Logger // nil: nowhere
}

// The network of such a machine runs packet programs.
var (
	_ Programs = (*rootNetwork)(nil)
	_ Filters  = (*rootNetwork)(nil)
	_ DataPath = (*rootNetwork)(nil)
	_ Outside  = (*rootNetwork)(nil)
)

// OpenNetwork implements Platform.
func (p Root) OpenNetwork(ctx context.Context, deleted, bound func()) (Network, error) {
	s, err := wire.Open(ctx, wire.Config{StateDir: p.StateDir, Deleted: deleted, Log: p.Log})
	if err != nil {
		return nil, err // no typed nil
	}
	return &rootNetwork{s, exit{outside.New(p.StateDir, bound, p.Log)}}, nil
}

// HasNetwork implements Platform.
func (p Root) HasNetwork() bool { return wire.Present(p.StateDir) }

// RemoveNetwork implements Platform.
func (p Root) RemoveNetwork(ctx context.Context) error {
	return errors.Join(outside.Remove(p.StateDir), wire.Remove(ctx, p.StateDir))
}

// HaveNetem implements Platform.
func (Root) HaveNetem() error { return wire.HaveNetem() }

// HaveHTB implements Platform.
func (Root) HaveHTB() error { return wire.HaveHTB() }

// HaveNAT implements Platform.
func (Root) HaveNAT() error { return outside.HaveNAT() }

// HavePorts implements Platform.
func (Root) HavePorts() error { return outside.HaveNAT() }

// HaveBind implements Platform.
func (Root) HaveBind() error { return outside.HaveBind() }

// HaveFastPath implements Platform: a kernel that has none is said so when the network is made.
func (Root) HaveFastPath() error { return nil }

// HaveUplink implements Platform.
func (Root) HaveUplink() error { return nil }

// HaveLimits implements Platform.
func (Root) HaveLimits() error { return nil }

// Reservable implements Platform.
func (Root) Reservable() slice.Reserve { return wire.Reservable() }

// TryProgram implements Platform.
func (Root) TryProgram(file string, object []byte) error { return wire.TryProgram(file, object) }

// Interfaces implements Platform.
func (Root) Interfaces() ([]hosts.Underlay, error) { return wire.Underlays() }

// WatchInterfaces implements Platform.
func (Root) WatchInterfaces(changed func()) (stop func() error, err error) {
	return wire.WatchInterfaces(changed)
}

// PathMTU implements Platform.
func (Root) PathMTU(local, peer netip.Addr) (bytes int, err error) { return wire.PathMTU(local, peer) }

// NetNS implements Platform.
func (Root) NetNS(pid int) uint64 {
	var st unix.Stat_t
	if pid == 0 || unix.Stat(netns.Path(pid), &st) != nil {
		return 0
	}
	return st.Ino
}
