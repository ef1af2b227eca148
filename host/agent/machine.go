package agent

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Runtime runs the slivers of this host. *sliver.Runtime does, with root's rights; see there for what each method
// promises. All values are plain data. Its methods are called from many goroutines.
type Runtime interface {
	Slices() ([]uint16, error)
	List() ([]sliver.Observed, error)
	Observe(id sliver.ID) (sliver.Observed, error)

	PrepareSlice(ctx context.Context, id uint16, name string, hosts []byte) error
	RemoveSlice(ctx context.Context, id uint16) error

	Available(ctx context.Context, from slice.Rootfs) error
	Fetch(ctx context.Context, s sliver.Spec) error
	Create(ctx context.Context, s sliver.Spec) (pid int, err error)
	Delete(ctx context.Context, id sliver.ID) error
	Start(ctx context.Context, id sliver.ID) error
	Pause(id sliver.ID) error
	Resume(id sliver.ID) error

	Note(id sliver.ID, key, value string) error
	WriteFiles(ctx context.Context, id sliver.ID, files []slice.File) error
	Exec(ctx context.Context, id sliver.ID, r sliver.ExecRequest) (code int, err error)
	LogPath(sliceName, node string) string
	Exits() <-chan sliver.ID
	Close()
}

// Network is the network of all slices on this host. *wire.Substrate is, with root's rights; see there for what each
// method promises. Two values are equal if they are the same network, not one that was made anew. One that also is a
// DataPath has a fast path.
type Network interface {
	Observe(ctx context.Context) (wire.State, error)
	Counters(ctx context.Context) (map[string]wire.Traffic, error)
	Close() error

	AddPort(ctx context.Context, p wire.Port) error
	AddTunnel(ctx context.Context, t wire.Tunnel) error
	DeletePorts(ctx context.Context, names ...string) error
	DeleteSlice(ctx context.Context, id uint16) error
	SetUp(ctx context.Context, port string, up bool) error
	ConfigureNode(ctx context.Context, pid int, n wire.Node) error

	AddSwitch(ctx context.Context, w wire.Switch) error
	DeleteSwitches(ctx context.Context, names ...string) error
	Join(ctx context.Context, a, b string) error
	Attach(ctx context.Context, port, sw string) error
	AddCable(ctx context.Context, c wire.Cable) error
	Unjoin(ctx context.Context, port string) error
	Treat(ctx context.Context, l wiring.Link) error

	OpenUnderlay(ctx context.Context, c wire.UnderlayConfig) error
	Underlay(ctx context.Context) (wire.UnderlayState, error)
}

// DataPath is what the fast path needs of a network.
type DataPath interface {
	FIB() fib.Maps
	Hold(ports map[int]bool)
	Router(port int) (uint32, error)
	Punts(ctx context.Context, router uint32) (map[string]uint64, error)
	ClearPunts(router uint32) error
}

// Platform is what a host makes its network of.
type Platform interface {
	OpenNetwork(ctx context.Context) (Network, error) // makes it, or adopts what an earlier agent made
	HasNetwork() bool                                 // something of it is there, perhaps half made
	RemoveNetwork(ctx context.Context) error          // also what is half made
	NetNS(pid int) uint64                             // inode of a process's network namespace; 0: there is none

	HaveNetem() error // nil: links can have delay and loss
	HaveHTB() error   // nil: links can have a rate
	Interfaces() ([]hosts.Underlay, error)
	WatchInterfaces(changed func()) (stop func() error, err error)
	PathMTU(local, peer netip.Addr) (bytes int, err error)
}

// rootPlatform is that of a host where the agent is root.
type rootPlatform struct {
	stateDir string
	deleted  func() // a device was deleted
}

func (p rootPlatform) OpenNetwork(ctx context.Context) (Network, error) {
	s, err := wire.Open(ctx, wire.Config{StateDir: p.stateDir, Deleted: p.deleted})
	if err != nil {
		return nil, err // no typed nil
	}
	return s, nil
}

func (p rootPlatform) HasNetwork() bool                        { return wire.Present(p.stateDir) }
func (p rootPlatform) RemoveNetwork(ctx context.Context) error { return wire.Remove(ctx, p.stateDir) }
func (rootPlatform) HaveNetem() error                          { return wire.HaveNetem() }
func (rootPlatform) HaveHTB() error                            { return wire.HaveHTB() }
func (rootPlatform) Interfaces() ([]hosts.Underlay, error)     { return wire.Underlays() }

func (rootPlatform) WatchInterfaces(changed func()) (stop func() error, err error) {
	return wire.WatchInterfaces(changed)
}

func (rootPlatform) PathMTU(local, peer netip.Addr) (bytes int, err error) {
	return wire.PathMTU(local, peer)
}

func (rootPlatform) NetNS(pid int) uint64 {
	var st unix.Stat_t
	if pid == 0 || unix.Stat(netns.Path(pid), &st) != nil {
		return 0
	}
	return st.Ino
}

// network is the network that is open; nil where there is none.
func (a *Agent) network() Network {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// dataPath is that of the network that is open; nil where there is none.
func (a *Agent) dataPath() DataPath {
	path, _ := a.network().(DataPath)
	return path
}

// tunnels is the part of the network that tunnels leave by; nil where there is no network.
func (a *Agent) tunnels() member.Tunnels {
	if n := a.network(); n != nil {
		return tunnels{n}
	}
	return nil
}

// tunnels makes a Network a member.Tunnels.
type tunnels struct{ Network }

// OpenUnderlay implements member.Tunnels.
func (t tunnels) OpenUnderlay(ctx context.Context, c member.UnderlayConfig) error {
	return t.Network.OpenUnderlay(ctx, wire.UnderlayConfig(c))
}

// UnderlayState implements member.Tunnels.
func (t tunnels) UnderlayState(ctx context.Context) (member.UnderlayState, error) {
	state, err := t.Underlay(ctx)
	if err != nil {
		return member.UnderlayState{}, err
	}
	out := member.UnderlayState{NICs: make(map[string]member.NIC, len(state.NICs)), Counters: state.Counters, Bound: state.Bound}
	for name, nic := range state.NICs {
		out.NICs[name] = member.NIC{Present: nic.Present, Up: nic.Up, Index: nic.Index, XDP: nic.XDP}
	}
	return out, nil
}

// specOf gives the container of a planned sliver.
func specOf(s plan.Sliver) sliver.Spec {
	return sliver.Spec{
		ID: sliver.ID(s.NodeID), SliceName: s.SliceName, Digest: s.Digest, Hostname: s.Hostname, Rootfs: s.Rootfs, Command: s.Command,
		Env: s.Env, Files: s.Files, Binds: s.Binds, Beneath: s.Beneath, CPU: s.CPU, Memory: s.Memory, PIDs: s.PIDs, Sysctls: s.Sysctls,
		Notes: s.Notes,
	}
}

// nodeNetOf gives what is configured within a node's network namespace.
func nodeNetOf(n plan.NodeNet) wire.Node {
	w := wire.Node{Router: n.Router, Sysctls: n.Sysctls, Loopbacks: n.Loopbacks, Routes: n.Routes}
	for _, i := range n.Interfaces {
		w.Interfaces = append(w.Interfaces, wire.Interface(i))
	}
	return w
}

// errNoNetwork is the error of what needs the network of all slices, while there is none.
var errNoNetwork = errors.New("the network of all slices is not open")
