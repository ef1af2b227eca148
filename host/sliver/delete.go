package sliver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runc "github.com/containerd/go-runc"
)

// Delete kills the processes of a sliver and removes everything of it except the log, in any state; a sliver that does
// not exist is no error. When it returns, no process holds the network namespace: the kernel removes it, with its
// devices, soon after.
func (r *Runtime) Delete(ctx context.Context, id ID) error {
	if err := checkName("node", id.Node); err != nil {
		return err
	}
	defer r.lock(id)()
	if err := r.delete(ctx, id); err != nil {
		return fmt.Errorf("delete node %s: %w", id.Node, err)
	}
	return nil
}

// killTimeout is when Delete gives up on a process that survives SIGKILL, as one in uninterruptible sleep does.
const killTimeout = 30 * time.Second

// delete: the record goes last, so that an interrupted Delete can be seen and repeated.
func (r *Runtime) delete(ctx context.Context, id ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("it does not die"))
	defer cancel()
	if err := r.kill(ctx, id); err != nil {
		return err
	}
	state := filepath.Join(r.ociDir(id.Slice), id.Node)
	if exists(state) {
		if err := r.forget(ctx, id, state); err != nil {
			return err
		}
	}
	weighed := r.groups.weight(r.groupOf(id)) > leastWeight
	if err := r.groups.remove(r.groupOf(id)); err != nil {
		return err
	}
	if weighed && exists(r.groups.path(r.groupOfSlice(id.Slice))) {
		if err := r.weigh(id.Slice); err != nil {
			return err
		}
	}
	for _, dir := range []string{r.filesDir(id), r.socketDir(id), r.nodeDir(id)} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
	}
	return nil
}

func (r *Runtime) kill(ctx context.Context, id ID) error {
	group := r.groupOf(id)
	if rec, err := r.readRecord(id); err == nil && rec.Process.PID != 0 {
		p := rec.Process
		if err := p.kill(); err != nil {
			return err
		}
		if r.groups.frozen(group) { // version 1: killed processes end only when thawed
			if err := r.groups.freeze(group, false); err != nil {
				return err
			}
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
		reap(p.PID)
	}
	return r.killGroup(ctx, group)
}

// forget removes the runtime's own state of a container whose processes have ended. With crun, without cgroups, that is
// a directory; to run crun for it would take longer than the rest of a deletion.
func (r *Runtime) forget(ctx context.Context, id ID, state string) error {
	if !r.oci.maskCgroups {
		messages := filepath.Join(r.nodeDir(id), "delete.log")
		err := r.command(id.Slice, messages).Delete(ctx, id.Node, &runc.DeleteOpts{Force: true})
		if err != nil {
			return explain(err, messages)
		}
	}
	if err := os.RemoveAll(state); err != nil {
		return fmt.Errorf("remove state of the OCI runtime: %w", err)
	}
	return nil
}
