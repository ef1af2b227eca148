// Package drive makes and unmakes resources on a machine: it carries out the actions of a plan.
package drive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/pergola-net/pergola/host/agent/failures"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Config is what a Driver needs.
type Config struct {
	Machine  *machine.Machine
	FastPath *fastpath.FastPath
	Log      *slog.Logger

	CallWatchdog func() error                       // sees to it that there is a watchdog
	Warn         func(id sliver.ID, message string) // something went wrong in a node, and is not tried again
	Restarted    func(id sliver.ID)                 // a node is made anew because its first process ended
	Wake         func()                             // asks for a pass soon: a node is other than it was
}

// Driver makes and unmakes resources. Its methods may be called from many goroutines.
type Driver struct {
	Config

	mu    sync.Mutex        // guards all below
	areas map[uint16]string // by slice's id, the digest of the area that this process made
	boots map[*Boot]bool    // exec lines that run
}

// New gives a driver that has made nothing yet.
func New(cfg Config) *Driver {
	return &Driver{Config: cfg, areas: make(map[uint16]string), boots: make(map[*Boot]bool)}
}

// Areas gives the digests of the slices' areas that this process made, by slice.
func (d *Driver) Areas() map[uint16]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.areas)
}

// Pass is a driver at work on one plan.
type Pass struct {
	*Driver
	Want    *plan.Wanted
	Seen    *observe.Snapshot
	Running context.Context // of the plan: ends when something else is wanted

	pids sync.Map // sliver.ID -> int: first processes of slivers that were made in this pass
}

// Do carries out an action. An error names what the action is about as its user does, and one because something has
// gone is marked as a consequence (package failures).
func (d *Pass) Do(ctx context.Context, act reconcile.Action) error {
	err := d.named(act.Key, d.do(ctx, act))
	if errors.Is(err, netns.ErrGone) || errors.Is(err, wire.ErrNoDevice) {
		return failures.Consequence(err)
	}
	return err
}

func (d *Pass) do(ctx context.Context, act reconcile.Action) error {
	switch act.Key.Kind {
	case plan.KindCard, plan.KindSwitch, plan.KindPort, plan.KindNodeNet, plan.KindWire, plan.KindQueue,
		plan.KindProgram, plan.KindOutside:
		if d.Machine.Network() == nil {
			return machine.ErrNoNetwork
		}
	}
	if act.Op == reconcile.OpDelete {
		return d.unmake(ctx, act.Key)
	}
	return d.make(ctx, act.Key, act.Op == reconcile.OpUpdate)
}

// make creates a resource, or amends one that is there.
func (d *Pass) make(ctx context.Context, k reconcile.Key, amend bool) error {
	id, network := sliver.ID{Slice: k.Slice, Node: k.Name}, d.Machine.Network()
	switch w := d.Want.Detail(k).(type) {
	case plan.HostNet:
		return d.Machine.OpenNetwork(ctx)
	case plan.Area:
		return d.prepareArea(ctx, k.Slice, w)
	case plan.Sliver:
		return d.create(ctx, specOf(w))
	case plan.Bridge:
		return network.AddSwitch(ctx, wire.Switch{Name: w.Name, Slice: k.Slice, Owner: w.Owner})
	case plan.Port:
		return d.addPort(ctx, k.Slice, w)
	case plan.Tunnel:
		return network.AddTunnel(ctx, tunnelOf(w))
	case plan.NodeNet:
		return d.configureNode(ctx, id, w)
	case routing.Rendered:
		return d.configureDaemon(ctx, id, w, amend)
	case plan.Wire:
		return connect(ctx, network, k.Slice, w)
	case wiring.Link:
		return network.Treat(ctx, w)
	case wiring.Card:
		return network.ShareCard(ctx, w)
	case plan.Program:
		return d.setProgram(ctx, id, w, amend)
	case plan.Outside:
		return d.setOutside(ctx, id, w)
	case plan.Process:
		return d.setProcess(ctx, id, w, amend)
	case plan.Boot:
		return d.boot(ctx, id, w.Lines, d.rendered(id).Note)
	case nil:
		return fmt.Errorf("make %v: it is not wanted", k)
	default:
		return fmt.Errorf("make %v: no driver for %T", k, w)
	}
}

func (d *Pass) unmake(ctx context.Context, k reconcile.Key) error {
	id, network := sliver.ID{Slice: k.Slice, Node: k.Name}, d.Machine.Network()
	switch k.Kind {
	case plan.KindHostNet:
		return d.removeNetwork(ctx)
	case plan.KindCard:
		return network.ShareCard(ctx, wiring.Card{})
	case plan.KindArea:
		return d.removeArea(ctx, k.Slice)
	case plan.KindSliver:
		return d.remove(ctx, id)
	case plan.KindSwitch:
		return network.DeleteSwitches(ctx, k.Name)
	case plan.KindPort:
		return network.DeletePorts(ctx, k.Name)
	case plan.KindWire:
		return disconnect(ctx, network, d.Seen.Wires[k])
	case plan.KindQueue:
		return network.Treat(ctx, d.Seen.Links[k].Plain())
	case plan.KindProgram:
		return d.deleteProgram(ctx, id)
	case plan.KindOutside:
		return d.deleteOutside(ctx, id)
	case plan.KindNodeNet, plan.KindConfig, plan.KindBoot:
		return d.Machine.Runtime.Note(id, plan.NoteOf[k.Kind], "")
	case plan.KindProcess:
		return nil // a process goes with its sliver
	default:
		return fmt.Errorf("unmake %v: no driver", k)
	}
}
