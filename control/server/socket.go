package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// listen opens the server's socket: for root, and for the group where it exists. The caller holds the lock, so a socket
// without an answer is that of a dead server.
func listen(ctx context.Context, path, group string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: it exists, and is not a socket", path)
	case err == nil && answers(ctx, path):
		return nil, fmt.Errorf("listen on %s: another server answers there", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of a dead server: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	old := unix.Umask(0o177) // never open to all; no other goroutine makes files yet
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := admitGroup(path, group); err != nil {
		l.Close()
		return nil, fmt.Errorf("open %s to group %s: %w", path, group, err)
	}
	return l, nil
}

// admitGroup opens the socket to the members of a group, if the group exists.
func admitGroup(path, group string) error {
	if group == "" {
		return nil
	}
	g, err := user.LookupGroup(group)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		return nil
	}
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return err
	}
	if err := os.Chown(path, -1, gid); err != nil {
		return err
	}
	return os.Chmod(path, 0o660)
}
