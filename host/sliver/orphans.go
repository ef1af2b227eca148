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

// A server whose state directory somebody removed, as an aborted test's is, leaves cgroups with processes of which no
// server knows any more. So the group above all others of a server carries the name of its state directory, and the next
// server that starts, whichever it is, removes those whose directory has gone.

// ownerMark is an extended attribute of a group: kernfs keeps such, and only root may write it.
const ownerMark = "trusted.pergola.state"

// owner is what the mark says: the state directory, and the root from which that name is to be read: a server in a chroot has
// another.
func owner(stateDir string) (string, error) {
	var root unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return "", fmt.Errorf("examine root directory: %w", err)
	}
	return fmt.Sprintf("%d:%d %s", root.Dev, root.Ino, stateDir), nil
}

// markGroups makes the group above all groups of this server and says on it whose it is.
func (r *Runtime) markGroups() error {
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

// removeOrphans removes the groups of servers whose state directory is no more, with the processes in them. What carries
// no mark, or one from another root, is left alone. What cannot be removed is not this server's trouble: the next one tries again.
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

// removeTree kills what is in a group and below it, and removes them.
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
