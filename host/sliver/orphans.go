package sliver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A server whose state directory was removed, as that of an aborted test, leaves cgroups with processes that no server
// manages. So the topmost group of a server is marked with its state directory, and the next server that starts, of any
// state directory, removes the groups whose directory does not exist.

// ownerMark is an extended attribute of a group: kernfs stores it, and only root may write it.
const ownerMark = "trusted.pergola.state"

// owner is the content of the mark: the state directory, and the root directory that it is relative to, which differs
// for a server in a chroot.
func owner(stateDir string) (string, error) {
	var root unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return "", fmt.Errorf("examine root directory: %w", err)
	}
	return fmt.Sprintf("%d:%d %s", root.Dev, root.Ino, stateDir), nil
}

// markGroups makes the topmost group of this server and marks it with its owner.
func (r *Runtime) markGroups() error {
	if isRootless() {
		return nil // there are none
	}
	if err := r.groups.make(r.groupRoot()); err != nil {
		return err
	}
	mark, err := owner(r.cfg.StateDir)
	if err != nil {
		return err
	}
	if err := unix.Setxattr(r.groups.path(r.groupRoot()), ownerMark, []byte(mark), 0); err != nil {
		return fmt.Errorf("mark cgroup %s: %w", r.groupRoot(), err)
	}
	return nil
}

// removeOrphans removes the groups of servers whose state directory does not exist, with the processes in them. Groups
// without a mark, or with one of another root, stay. A group that cannot be removed is no error: the next server
// retries.
func (r *Runtime) removeOrphans(ctx context.Context) error {
	groups, err := r.groups.children("")
	if err != nil {
		return err
	}
	prefix, err := owner("/")
	if err != nil {
		return err
	}
	for _, group := range groups {
		if !strings.HasPrefix(group, "pergola-") {
			continue
		}
		mark := make([]byte, unix.PathMax)
		n, err := unix.Getxattr(r.groups.path(group), ownerMark, mark)
		if err != nil || !strings.HasPrefix(string(mark[:n]), prefix) {
			continue
		}
		stateDir := strings.TrimPrefix(string(mark[:n]), strings.TrimSuffix(prefix, "/"))
		if _, err := os.Lstat(stateDir); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		_ = r.removeTree(ctx, group)
	}
	return nil
}

// removeTree kills the processes of a group and of those below it, and removes the groups.
func (r *Runtime) removeTree(ctx context.Context, group string) error {
	below, err := r.groups.children(group)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(slices.Values(below)) {
		if err := r.removeTree(ctx, filepath.Join(group, name)); err != nil {
			return err
		}
	}
	if r.groups.frozen(group) { // version 1: the frozen do not die
		if err := r.groups.freeze(group, false); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("it does not die"))
	defer cancel()
	if err := r.killGroup(ctx, group); err != nil {
		return err
	}
	return r.groups.remove(group)
}
