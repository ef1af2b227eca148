// Package machine is what an agent asks of the machine that it runs on: a Runtime for slivers, and a Platform, of which
// the Network is made. Root is the Platform of a machine where the agent has root's rights; a host without them brings
// others, as tests do.
package machine

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/netip"
	"sync"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
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
	Installed(programs ...string) bool
	Lacks(nodes []*slice.Node) (certain, doubtful []lack.Lack)
	Fetch(ctx context.Context, s sliver.Spec) error
	Create(ctx context.Context, s sliver.Spec) (pid int, err error)
	Delete(ctx context.Context, id sliver.ID) error
	Start(ctx context.Context, id sliver.ID) error
	Pause(id sliver.ID) error
	Resume(id sliver.ID) error

	Note(id sliver.ID, key, value string) error
	ReadFile(id sliver.ID, name string, most int64) (slice.File, error)
	ReadDir(id sliver.ID, name string) ([]string, error)
	EtcFiles(id sliver.ID, most int64, skip func(name string) bool) ([]slice.File, error)
	Dial(ctx context.Context, id sliver.ID, name string) (net.Conn, error)
	WriteFiles(ctx context.Context, id sliver.ID, files []slice.File) error
	Exec(ctx context.Context, id sliver.ID, r sliver.ExecRequest) (code int, err error)
	Volumes() ([]sliver.Volume, error)
	RemoveVolumes(slice string) error
	LogPath(sliceName, node string) string
	// Listen makes the control socket of a sliver; the error is sliver.ErrNoSocket where it was made without one.
	Listen(id sliver.ID) (*net.UnixListener, error)
	Exits() <-chan sliver.ID
	Close()
}

// Network is the network of all slices on this host. *wire.HostNetwork is, with root's rights; see there for what each
// method promises. Two values are equal if they are the same network, not one that was made anew. One that also is a
// DataPath has a fast path.
type Network interface {
	Observe(ctx context.Context) (wire.State, error)
	Counters(ctx context.Context) (map[string]wire.Traffic, error)
	QueueStats(ctx context.Context, devices ...string) (map[string]map[uint16]wire.QueueStats, error)
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
	ShareCard(ctx context.Context, c wiring.Card) error

	OpenUnderlay(ctx context.Context, c wire.UnderlayConfig) error
	Underlay(ctx context.Context) (wire.UnderlayState, error)
}

// DataPath is what the fast path needs of a network.
type DataPath interface {
	FIB() fib.Maps
	Hold(ports map[int]bool)
	Router(port int) (uint32, error)
	Punts(ctx context.Context, router uint32) (map[string]uint64, error)
	SetPunts(router uint32, counts map[string]uint64) error

	SetLabel(space, label uint32, n datapath.NHLFE) error
	SetFTN(space, ftn uint32, n datapath.NHLFE) error
	DeleteLabel(space, label uint32) error
	DeleteFTN(space, ftn uint32) error
	AllLabels() iter.Seq2[datapath.LabelEntry, error]
	Reserved(space, ftn uint32) (datapath.Reserved, error)
	BestEffort() (share float64, err error)
	ReservedWork() (datapath.ReservedWork, error)
	SetLabelRules(space uint32, rules []datapath.LabelRule) error
	LabelRules() (map[uint32][]datapath.LabelRule, error)

	ReadUnwalked() (UnwalkedReader, error)
	SendOn(u *datapath.Unwalked, ip []byte) error
}

// Platform is what a host makes its network of.
type Platform interface {
	// OpenNetwork makes the network, or adopts what an earlier agent made. deleted is called when a device of it
	// was deleted, perhaps not by the agent, and bound when a process has bound a port that its sliver reserves so;
	// they must not wait.
	OpenNetwork(ctx context.Context, deleted, bound func()) (Network, error)
	HasNetwork() bool                        // something of it is there, perhaps half made
	RemoveNetwork(ctx context.Context) error // also what is half made
	NetNS(pid int) uint64                    // inode of a process's network namespace; 0: there is none

	HaveNetem() error // nil: links can have delay and loss
	HaveHTB() error   // nil: links can have a rate
	HaveNAT() error   // nil: nodes can reach the outside
	HavePorts() error // nil: nodes can have ports of the machine
	HaveBind() error  // nil: their processes can reserve ports by binding them
	// HaveFastPath is nil if there is one: packet programs, label-switched paths, classes and policers need it.
	HaveFastPath() error
	HaveUplink() error // nil: nodes can be joined to the machine's own network
	HaveLimits() error // nil: what slivers use of processors and memory can be limited
	// Reservable is what nodes can reserve of the machine, beside cores and memory.
	Reservable() slice.Reserve
	// TryProgram says what the kernel has against a packet program; nil: nothing.
	TryProgram(file string, object []byte) error
	Interfaces() ([]hosts.Underlay, error)
	WatchInterfaces(changed func()) (stop func() error, err error)
	PathMTU(local, peer netip.Addr) (bytes int, err error)
}

// ErrNoNetwork is the error of what needs the network of all slices, while there is none.
var ErrNoNetwork = errors.New("the network of this host is not open")

// Machine is a runtime, a platform, and the network while it is open. Its methods may be called from many goroutines.
type Machine struct {
	Runtime  Runtime
	Platform Platform

	wake func()

	mu   sync.Mutex // guards open
	open Network    // nil: there is none
}

// New gives a machine whose network is not open. wake is called when something has happened to the network: a device
// was deleted, a port was bound.
func New(r Runtime, p Platform, wake func()) *Machine {
	return &Machine{Runtime: r, Platform: p, wake: wake}
}

// OpenNetwork makes the network, or adopts what an earlier agent made.
func (m *Machine) OpenNetwork(ctx context.Context) error {
	n, err := m.Platform.OpenNetwork(ctx, m.wake, m.wake)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = n
	return nil
}

// DetachNetwork gives the network that was open, or nil. The machine has none afterwards; the caller closes it.
func (m *Machine) DetachNetwork() Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.open
	m.open = nil
	return n
}

// Network is the network that is open; nil where there is none.
func (m *Machine) Network() Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// DataPath is that of the network that is open; nil where there is none.
func (m *Machine) DataPath() DataPath {
	path, _ := m.Network().(DataPath)
	return path
}
