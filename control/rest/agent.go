package rest

import (
	"context"
	"io"
	"net/netip"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// Agent is what the API needs of a host: everything that touches a running node. All calls end when ctx does.
// A node that does not run is an error that wraps ErrNotRunning.
type Agent interface {
	// Supports says, as an error, what the machine lacks for a slice. Doubts, for a person, are what may be
	// missing.
	Supports(context.Context, *slice.Slice) (doubts []string, err error)
	// Reservable is what nodes can reserve of the machine, beside cores and memory.
	Reservable() slice.Reserve
	// Lacks names what nodes cannot have here, for a person.
	Lacks() []string
	// Capacity gives the cores and the bytes of memory of the machine; 0: not known.
	Capacity() (cores float64, memory uint64)
	// Retry makes the agent repeat at once what failed for a slice: its user may have removed the cause. If
	// anything had failed, the host's report of the slice is no longer settled when Retry returns.
	Retry(ctx context.Context, slice string)
	// Exec runs a command in a node and gives its exit status, 128 + signal where a signal ended it.
	Exec(ctx context.Context, slice, node string, r api.ExecRequest) (status int, err error)
	// Logs writes what a node's first process wrote.
	Logs(ctx context.Context, slice, node string, opt api.LogOptions, w io.Writer) error
	// Capture writes frames of an interface as pcap. The file header comes as soon as the capture has begun.
	Capture(ctx context.Context, slice, node, iface string, opt api.CaptureOptions, w io.Writer) error
	// Convergence says whether routing has settled.
	Convergence(ctx context.Context, slice string) (api.Convergence, error)
	// Addresses gives what the kernels of nodes have to which the slice gives no address.
	Addresses(ctx context.Context, slice string) (map[string][]netip.Addr, error)
	// Check runs checks and calls progress, which may be nil, from one goroutine at a time.
	Check(ctx context.Context, slice string, r api.CheckRequest, progress func(api.CheckProgress)) (
		[]api.CheckResult, error)
	// FastPath says what the fast path does for the routers of a slice.
	FastPath(ctx context.Context, slice string) (api.FastPath, error)
	// Verify compares the fast path's mirror with the kernels of routers: of these nodes, or of all that run.
	Verify(ctx context.Context, slice string, nodes ...string) (api.Verification, error)
	// Traffic gives what went through the interfaces of nodes.
	Traffic(ctx context.Context, slice string) (api.SliceTraffic, error)
	// Queues gives what went through the queues of links: of those that are named, or of all.
	Queues(ctx context.Context, slice string, links ...string) ([]api.QueueTraffic, error)
	// LSPs says how the label-switched paths of a slice are at the routers of this host: those that are named, or
	// all.
	LSPs(ctx context.Context, slice string, lsps ...string) (api.SliceLSPs, error)
	// Programs gives the packet programs of nodes, with their counters: of those that are named, or of all.
	Programs(ctx context.Context, slice string, nodes ...string) ([]api.NodeProgram, error)
	// Changes gives what was changed in nodes while they ran.
	Changes(ctx context.Context, slice string, q api.ChangesQuery) ([]api.NodeChanges, error)
	// Filters lists the filters of a program node.
	Filters(ctx context.Context, slice, node string) (api.NodeFilters, error)
	// ChangeFilters deletes and inserts filters of a program node: all, or none.
	ChangeFilters(ctx context.Context, slice, node string, change api.FilterChange) error
	// ReplaceFilters makes filters all that a program node has, or changes nothing.
	ReplaceFilters(ctx context.Context, slice, node string, filters []string) error
	// Volumes lists the volumes that are on this host.
	Volumes(ctx context.Context) ([]api.Volume, error)
	// RemoveVolumes removes those of a slice, which must not be there any more.
	RemoveVolumes(ctx context.Context, slice string) error
	// Underlay gives what went through all tunnels of this host.
	Underlay(ctx context.Context) (api.UnderlayTraffic, error)
}
