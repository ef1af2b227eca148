package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
)

// driver makes and unmakes resources: one method of make, amend and unmake for each kind that needs it.
type driver struct {
	*Agent
	want *plan.Wanted
	seen *sight

	running   context.Context // of the plan: ends when something else is wanted
	interrupt func()          // ends running
}

func (d *driver) do(ctx context.Context, act reconcile.Action) error {
	switch act.Key.Kind {
	case plan.KindSwitch, plan.KindPort, plan.KindNodeNet, plan.KindWire, plan.KindQueue:
		if d.network() == nil {
			return errNoNetwork
		}
	}
	if act.Op == reconcile.OpDelete {
		return d.unmake(ctx, act.Key)
	}
	return d.make(ctx, act.Key, act.Op == reconcile.OpUpdate)
}

// make creates a resource, or amends one that is there.
func (d *driver) make(ctx context.Context, k reconcile.Key, amend bool) error {
	id := sliver.ID{Slice: k.Slice, Node: k.Name}
	switch w := d.want.Detail(k).(type) {
	case plan.HostNet:
		return d.openNetwork(ctx)
	case plan.Area:
		return d.prepare(ctx, k.Slice, w)
	case plan.Sliver:
		return d.create(ctx, specOf(w))
	case plan.Bridge:
		return d.network().AddSwitch(ctx, wire.Switch{Name: w.Name, Slice: k.Slice, Owner: w.Owner})
	case plan.Port:
		return d.addPort(ctx, k.Slice, w)
	case plan.Tunnel:
		return d.network().AddTunnel(ctx, wire.Tunnel(w))
	case plan.NodeNet:
		return d.setUp(ctx, k, w)
	case routing.Rendered:
		return d.configure(ctx, k, w, amend)
	case plan.Wire:
		return d.connect(ctx, k.Slice, w)
	case wiring.Link:
		return d.network().Treat(ctx, w)
	case plan.Process:
		return d.setProcess(ctx, id, w, amend)
	case plan.Boot:
		return d.boot(ctx, id, w.Lines)
	case nil:
		return fmt.Errorf("make %v: it is not wanted", k)
	default:
		return fmt.Errorf("make %v: no driver for %T", k, w)
	}
}

func (d *driver) unmake(ctx context.Context, k reconcile.Key) error {
	id := sliver.ID{Slice: k.Slice, Node: k.Name}
	switch k.Kind {
	case plan.KindHostNet:
		return d.closeNetwork(ctx)
	case plan.KindArea:
		return d.clearArea(ctx, k.Slice)
	case plan.KindSliver:
		return d.remove(ctx, id)
	case plan.KindSwitch:
		return d.network().DeleteSwitches(ctx, k.Name)
	case plan.KindPort:
		return d.network().DeletePorts(ctx, k.Name)
	case plan.KindWire:
		return d.disconnect(ctx, d.seen.wires[k])
	case plan.KindQueue:
		return d.network().Treat(ctx, d.seen.links[k].Plain())
	case plan.KindNodeNet, plan.KindConfig, plan.KindBoot:
		return d.runtime.Note(id, plan.NoteOf[k.Kind], "")
	case plan.KindProcess:
		return nil // a process goes with its sliver
	default:
		return fmt.Errorf("unmake %v: no driver", k)
	}
}

func (d *driver) openNetwork(ctx context.Context) error {
	n, err := d.platform.OpenNetwork(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = n
	return nil
}

func (d *driver) closeNetwork(ctx context.Context) error {
	d.mu.Lock()
	n := d.open
	d.open = nil // also if a step fails: what is left then is seen as broken, and removed by the next plan
	d.mu.Unlock()
	if n == nil {
		return d.platform.RemoveNetwork(ctx)
	}
	return errors.Join(d.fast.close(), n.Close(), d.platform.RemoveNetwork(ctx))
}

func (d *driver) prepare(ctx context.Context, id uint16, w plan.Area) error {
	if err := d.runtime.PrepareSlice(ctx, id, w.Name, w.Hosts); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prepared[id] = w.Digest()
	return nil
}

// clearArea removes all that is left of a slice: its devices at once, then its files.
func (d *driver) clearArea(ctx context.Context, id uint16) error {
	if s := d.network(); s != nil {
		if err := s.DeleteSlice(ctx, id); err != nil {
			return err
		}
	}
	d.mu.Lock()
	delete(d.prepared, id)
	d.mu.Unlock()
	return d.runtime.RemoveSlice(ctx, id)
}

func (d *driver) create(ctx context.Context, spec sliver.Spec) error {
	// An image may take minutes to arrive. It goes on arriving when nobody waits.
	if err := d.runtime.Fetch(d.running, spec); d.running.Err() != nil {
		return reconcile.ErrSkipped
	} else if err != nil {
		return fmt.Errorf("create sliver %s: %w", spec.ID, err)
	}
	if spec.Notes[plan.FenceNote] != "" { // the one that was called when the plan was made may have gone while the image arrived
		d.needWatchdog()
	}
	pid, err := d.runtime.Create(ctx, spec)
	if err != nil {
		return err
	}
	d.pids.Store(spec.ID, pid)
	return nil
}

func (d *driver) remove(ctx context.Context, id sliver.ID) error {
	d.fast.remove(id)
	if err := d.runtime.Delete(ctx, id); err != nil {
		return err
	}
	d.pids.Delete(id)
	if d.seen.slivers[id].State == sliver.Exited {
		d.countRestart(id)
	}
	return nil
}

// pid gives a sliver's first process: one made in this pass, or seen at its beginning.
func (d *driver) pid(id sliver.ID) (int, error) {
	if pid, ok := d.pids.Load(id); ok {
		return pid.(int), nil
	}
	if s := d.seen.slivers[id]; s.PID != 0 {
		return s.PID, nil
	}
	return 0, fmt.Errorf("%s: %w", id.Node, sliver.ErrNotRunning)
}

// addPort makes a port that has no carrier yet: a wire gives it one.
func (d *driver) addPort(ctx context.Context, id uint16, p plan.Port) error {
	w := wire.Port{
		Name: p.Device, Slice: id, Owner: p.Node + ":" + p.Name, Digest: p.Digest(),
		HostNetns: p.Uplink, Inner: p.Name, MTU: p.MTU, Down: true,
	}
	var err error
	if w.MAC, err = net.ParseMAC(p.MAC); err != nil {
		return fmt.Errorf("add interface %s: %w", w.Owner, err)
	}
	if p.Uplink {
		w.Addresses = p.Addresses
		return d.network().AddPort(ctx, w)
	}
	node := sliver.ID{Slice: id, Node: p.Node}
	if w.PID, err = d.pid(node); err == nil {
		err = d.unsettle(node)
	}
	if err != nil {
		return fmt.Errorf("add interface %s: %w", w.Owner, err)
	}
	return d.network().AddPort(ctx, w)
}

// unsettle forgets that a node's network was configured, before it gets an interface in the place of one that is gone: that has neither
// addresses nor routes yet, and the plan may end, or the server die, before it has.
func (d *driver) unsettle(id sliver.ID) error {
	if d.seen.slivers[id].Notes[plan.NoteOf[plan.KindNodeNet]] == "" {
		return nil
	}
	return d.runtime.Note(id, plan.NoteOf[plan.KindNodeNet], "")
}

// connect makes a wire, and then lets its ports have a carrier.
func (d *driver) connect(ctx context.Context, id uint16, w plan.Wire) error {
	s := d.network()
	switch w := w.(type) {
	case plan.Join:
		if err := s.Join(ctx, w.A, w.B); err != nil {
			return err
		}
		return errors.Join(s.SetUp(ctx, w.A, true), s.SetUp(ctx, w.B, true))
	case plan.Plug:
		if err := s.Attach(ctx, w.Port, w.Bridge); err != nil {
			return err
		}
		return s.SetUp(ctx, w.Port, true)
	case plan.Cable:
		return s.AddCable(ctx, wire.Cable{
			Slice: id, Owner: w.Owner, MTU: w.MTU,
			Ends: [2]wire.CableEnd{{Name: w.A, Switch: w.BridgeA}, {Name: w.B, Switch: w.BridgeB}},
		})
	default:
		return fmt.Errorf("connect %T: no driver", w)
	}
}

// disconnect takes the carrier away, and then the wire. What is gone already is no error.
func (d *driver) disconnect(ctx context.Context, w plan.Wire) error {
	switch w := w.(type) {
	case plan.Join:
		return errors.Join(d.cutOff(ctx, w.A), d.cutOff(ctx, w.B))
	case plan.Plug:
		return d.cutOff(ctx, w.Port)
	case plan.Cable:
		return d.network().DeletePorts(ctx, w.A, w.B)
	default:
		return fmt.Errorf("disconnect %T: no driver", w)
	}
}

func (d *driver) cutOff(ctx context.Context, port string) error {
	s := d.network()
	err := errors.Join(s.SetUp(ctx, port, false), s.Unjoin(ctx, port))
	if errors.Is(err, wire.ErrNoDevice) {
		return nil
	}
	return err
}

func (d *driver) setUp(ctx context.Context, k reconcile.Key, n plan.NodeNet) error {
	id := sliver.ID{Slice: k.Slice, Node: k.Name}
	pid, err := d.pid(id)
	if err != nil {
		return err
	}
	if err := d.network().ConfigureNode(ctx, pid, nodeNetOf(n)); err != nil {
		return fmt.Errorf("configure the network of %s: %w", k.Name, err)
	}
	return d.runtime.Note(id, plan.NoteOf[plan.KindNodeNet], plan.Digest(n))
}

// configure writes the files of a routing daemon. A daemon that runs is told to read them again; it does not restart.
func (d *driver) configure(ctx context.Context, k reconcile.Key, r routing.Rendered, amend bool) error {
	id := sliver.ID{Slice: k.Slice, Node: k.Name}
	if err := d.runtime.WriteFiles(ctx, id, r.Files); err != nil {
		return fmt.Errorf("configure %s: %w", k.Name, err)
	}
	if s := d.seen.slivers[id]; amend && s.State == sliver.Running {
		if err := d.reload(ctx, id, r); err != nil {
			return err
		}
	}
	return d.runtime.Note(id, plan.NoteOf[plan.KindConfig], plan.Digest(r.Files))
}

// reloadTimeout is how long a daemon may take to read its configuration again: a user may have stopped it.
const reloadTimeout = time.Minute

func (d *driver) reload(ctx context.Context, id sliver.ID, r routing.Rendered) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTimeout, fmt.Errorf("no answer for %v", reloadTimeout))
	defer cancel()
	for _, command := range r.Reload {
		complaints, err := d.run(ctx, id, command)
		if err != nil {
			return fmt.Errorf("reload the configuration of %s: %w", id.Node, err)
		}
		if complaints != "" { // that daemons had to start anew, for example
			d.warn(id, "reload the configuration: "+complaints)
		}
	}
	return nil
}

func (d *driver) setProcess(ctx context.Context, id sliver.ID, p plan.Process, amend bool) error {
	if !amend {
		if err := d.runtime.Start(ctx, id); err != nil {
			return err
		}
	}
	switch {
	case p.Frozen:
		return d.runtime.Pause(id)
	case amend:
		return d.resume(ctx, id)
	}
	return nil
}

// resume lets a node go on. Its routing daemon could not read what was configured meanwhile.
func (d *driver) resume(ctx context.Context, id sliver.ID) error {
	if err := d.runtime.Resume(id); err != nil {
		return err
	}
	if r, ok := d.want.Detail(reconcile.Key{Kind: plan.KindConfig, Slice: id.Slice, Name: id.Node}).(routing.Rendered); ok {
		if err := d.reload(ctx, id, r); err != nil {
			d.warn(id, err.Error())
		}
	}
	return nil
}

// run runs a command in a node and gives what it complained about; if it fails, all that it printed is part of the error.
func (d *driver) run(ctx context.Context, id sliver.ID, command []string) (complaints string, err error) {
	var out, complained bytes.Buffer
	code, err := d.runtime.Exec(ctx, id, sliver.ExecRequest{Args: command, Stdout: &out, Stderr: &complained})
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("%s: exit status %d: %s", command[0], code, strings.TrimSpace(out.String()+complained.String()))
	}
	return strings.TrimSpace(complained.String()), nil
}
