package drive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe/running"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

func (d *Pass) prepareArea(ctx context.Context, id uint16, w plan.Area) error {
	if err := d.Machine.Runtime.PrepareSlice(ctx, id, w.Name, w.Hosts); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.areas[id] = w.Digest()
	return nil
}

// removeArea removes all that is left of a slice: its devices at once, then its files.
func (d *Pass) removeArea(ctx context.Context, id uint16) error {
	if n := d.Machine.Network(); n != nil {
		if err := n.DeleteSlice(ctx, id); err != nil {
			return err
		}
	}
	d.mu.Lock()
	delete(d.areas, id)
	d.mu.Unlock()
	return d.Machine.Runtime.RemoveSlice(ctx, id)
}

// specOf gives the container of a planned sliver.
func specOf(s plan.Sliver) sliver.Spec {
	return sliver.Spec{
		ID: sliver.ID(s.NodeID), SliceName: s.SliceName, Digest: s.Digest, Hostname: s.Hostname,
		Rootfs: s.Rootfs, Command: s.Command, Args: s.Args, User: s.User, Stdin: s.Stdin,
		Env: s.Env, Files: s.Files, Binds: s.Binds, Volumes: s.Volumes,
		Devices: s.Devices, CapAdd: s.CapAdd, Named: s.Named,
		Beneath: s.Beneath, CPU: s.CPU, CPUPeriod: s.CPUPeriod, Memory: s.Memory, PIDs: s.PIDs,
		Sysctls: s.Sysctls, Notes: s.Notes, Socket: s.Socket,
	}
}

func (d *Pass) create(ctx context.Context, spec sliver.Spec) error {
	// An image may take minutes to arrive. It goes on arriving when nothing waits for it.
	if err := d.Machine.Runtime.Fetch(d.Running, spec); d.Running.Err() != nil {
		return reconcile.ErrSkipped
	} else if err != nil {
		return fmt.Errorf("create node %s: %w", spec.Node, err)
	}
	// The watchdog of when the plan was made may have ended while the image arrived.
	if spec.Notes[plan.FenceNote] != "" {
		d.callWatchdog()
	}
	pid, err := d.Machine.Runtime.Create(ctx, spec)
	if err != nil {
		return err
	}
	d.pids.Store(spec.ID, pid)
	return nil
}

func (d *Pass) remove(ctx context.Context, id sliver.ID) error {
	if err := d.delete(ctx, id); err != nil {
		return err
	}
	if d.Seen.Slivers[id].State == sliver.Exited {
		d.Restarted(id)
	}
	return nil
}

// delete removes a sliver, and before it what the fast path has of it.
func (d *Driver) delete(ctx context.Context, id sliver.ID) error {
	d.endBoots(id)
	d.FastPath.Remove(id)
	return d.Machine.Runtime.Delete(ctx, id)
}

// pid gives a sliver's first process: one made in this pass, or observed at its beginning.
func (d *Pass) pid(id sliver.ID) (int, error) {
	if pid, ok := d.pids.Load(id); ok {
		return pid.(int), nil
	}
	if s := d.Seen.Slivers[id]; s.PID != 0 {
		return s.PID, nil
	}
	return 0, fmt.Errorf("%s: %w", id.Node, sliver.ErrNotRunning)
}

func (d *Pass) setProcess(ctx context.Context, id sliver.ID, p plan.Process, amend bool) error {
	if !amend {
		if err := d.Machine.Runtime.Start(ctx, id); err != nil {
			return err
		}
	}
	switch {
	case p.Frozen:
		return d.Machine.Runtime.Pause(id)
	case amend:
		return d.resume(ctx, id)
	}
	return nil
}

// resume lets a node go on. Its routing daemon could not read what was configured meanwhile.
func (d *Pass) resume(ctx context.Context, id sliver.ID) error {
	if err := d.Machine.Runtime.Resume(id); err != nil {
		return err
	}
	if r := d.rendered(id); len(r.Files) > 0 {
		if err := d.reload(ctx, id, r); err != nil {
			d.Warn(id, err.Error())
		}
	}
	return nil
}

// rendered is the configuration of a node's routing daemon; the zero value where it has none.
func (d *Pass) rendered(id sliver.ID) routing.Rendered {
	r, _ := d.Want.Detail(reconcile.Key{Kind: plan.KindConfig, Slice: id.Slice, Name: id.Node}).(routing.Rendered)
	return r
}

// configureDaemon writes the files of a routing daemon. A daemon that runs is told to read them again; it does not
// restart.
func (d *Pass) configureDaemon(ctx context.Context, id sliver.ID, r routing.Rendered, amend bool) error {
	if amend {
		d.keepChange(ctx, id, r)
	}
	if err := d.Machine.Runtime.WriteFiles(ctx, id, r.Files); err != nil {
		return fmt.Errorf("configure %s: %w", id.Node, err)
	}
	if s := d.Seen.Slivers[id]; amend && s.State == sliver.Running {
		if err := d.reload(ctx, id, r); err != nil {
			return err
		}
		d.forgetChange(id, r)
	}
	return d.Machine.Runtime.Note(id, plan.NoteOf[plan.KindConfig], plan.Digest(r.Files))
}

// keepChange notes that daemons were configured by hand before they get another configuration beside that: later the
// two could not be told apart. What cannot be found out is not noted.
func (d *Pass) keepChange(ctx context.Context, id sliver.ID, r routing.Rendered) {
	if d.Seen.Slivers[id].State != sliver.Running || len(r.Note) == 0 {
		return
	}
	daemon := running.Daemon{Runtime: d.Machine.Runtime, ID: id, Kind: slice.FRR}
	changed, err := daemon.Differs(ctx)
	if err == nil && changed {
		err = d.Machine.Runtime.Note(id, plan.ChangedNote, "yes")
	}
	if err != nil {
		d.Log.Debug("find out whether a routing daemon was configured by hand", "node", id, "error", err)
	}
}

// forgetChange takes the note back where daemons now run what they were given and nothing else, as after a network is
// brought up from what `pergola save` wrote of it.
func (d *Pass) forgetChange(id sliver.ID, r routing.Rendered) {
	daemon := running.Daemon{Runtime: d.Machine.Runtime, ID: id, Kind: slice.FRR, Files: r.Files}
	all, err := daemon.RunsAsGiven()
	if err == nil && all {
		err = d.Machine.Runtime.Note(id, plan.ChangedNote, "")
	}
	if err != nil {
		d.Log.Debug("find out whether a routing daemon runs what it was given", "node", id, "error", err)
	}
}

// reloadTimeout is how long a daemon may take to read its configuration again: a user may have stopped it.
const reloadTimeout = time.Minute

func (d *Pass) reload(ctx context.Context, id sliver.ID, r routing.Rendered) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTimeout, fmt.Errorf("no answer for %v", reloadTimeout))
	defer cancel()
	for _, command := range r.Reload {
		complaints, err := d.run(ctx, id, command)
		if err != nil {
			return fmt.Errorf("reload the configuration of %s: %w", id.Node, err)
		}
		if complaints != "" { // that daemons had to start anew, for example
			d.Warn(id, "reload the configuration: "+complaints)
		}
	}
	return nil
}

// configureTimeout is how long FRR may take for a few lines: a user may have stopped it, and other routers wait.
const configureTimeout = 5 * time.Second

// Configure has FRR's daemons in a node carry out lines of configuration, which no file has.
func (d *Driver) Configure(ctx context.Context, id sliver.ID, lines []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, configureTimeout,
		fmt.Errorf("no answer for %v", configureTimeout))
	defer cancel()
	all := slices.Concat([]string{"configure terminal"}, lines, []string{"end"})
	_, err := d.run(ctx, id, []string{"vtysh", "-c", strings.Join(all, "\n")})
	return err
}

// Started tells one start of FRR in a node from the next; empty: it does not run.
func (d *Driver) Started(id sliver.ID) string {
	f, err := d.Machine.Runtime.ReadFile(id, "/run/frr/zebra.pid", 64)
	if err != nil {
		return ""
	}
	return string(f.Data)
}

// run runs a command in a node and gives what it wrote to its standard error; if it fails, the end of all that it
// wrote is part of the error.
func (d *Driver) run(ctx context.Context, id sliver.ID, command []string) (complaints string, err error) {
	var out, complained tail
	request := sliver.ExecRequest{Args: command, Stdout: &out, Stderr: &complained}
	code, err := d.Machine.Runtime.Exec(ctx, id, request)
	if err != nil {
		return "", fmt.Errorf("run %s in node %s: %w", command[0], id.Node, err)
	}
	if code != 0 {
		all := strings.TrimSpace(out.String() + complained.String())
		return "", fmt.Errorf("%s: exit status %d: %s", command[0], code, all)
	}
	return strings.TrimSpace(complained.String()), nil
}
