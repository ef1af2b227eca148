package sliver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SocketDir is where a sliver finds its control socket. A directory is mounted and not the socket, so that the sliver
// sees the new socket of a process that listens after this one. It is mounted read-only and belongs to the machine's
// root: the sliver can neither delete the socket nor put anything beside it.
const SocketDir = "/run/pergola"

// SocketName is the name of the control socket in its directory.
const SocketName = "node.sock"

// ErrNoSocket means that a sliver was made without the directory of a control socket.
var ErrNoSocket = errors.New("the node has no directory for a control socket")

// Listen makes the control socket of a sliver, in the place of one that an earlier process left there: of type
// SOCK_SEQPACKET, for the sliver's root user alone.
func (r *Runtime) Listen(id ID) (*net.UnixListener, error) {
	dir, err := unix.Open(r.socketDir(id), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("listen for node %s: %w", id.Node, ErrNoSocket)
	}
	if err != nil {
		return nil, fmt.Errorf("open directory of control socket of node %s: %w", id.Node, err)
	}
	defer unix.Close(dir)
	l, err := listenIn(dir, uidBase(id.Slice))
	if err != nil {
		return nil, fmt.Errorf("listen for node %s: %w", id.Node, err)
	}
	return l, nil
}

// listenIn binds by the open directory: a path may be longer than an address can be (108 bytes, unix(7)).
func listenIn(dir, owner int) (*net.UnixListener, error) {
	if err := unix.Unlinkat(dir, SocketName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("remove the socket before: %w", err)
	}
	path := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + SocketName
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then the path may be another file's, and the next process replaces the socket
	if err := errors.Join(os.Lchown(path, owner, owner), os.Chmod(path, 0o600)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
