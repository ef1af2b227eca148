package path

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

//go:embed mininet_chain.py
var mininetScript string

// mininet makes chains with Mininet, each in a network, mount and PID namespace of its own: what Mininet does not
// remove goes with them.
type mininet struct{}

func openMininet(ctx context.Context) (maker, error) {
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", "-c", "import mininet.net").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("load Mininet: %w: %s", err, lastLine(out))
	}
	return mininet{}, nil
}

func lastLine(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, '\n')+1:]
}

func (mininet) close() error { return nil }

func (mininet) hosts(ctx context.Context, routers int) (_ *Chain, err error) {
	c := &Chain{Routers: routers}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a chain of %d routers with Mininet: %w", routers,
				err), c.Close())
		}
	}()
	control, its, err := socketPair()
	if err != nil {
		return nil, err
	}
	command := []string{"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
		"/usr/bin/python3", "-c", mininetScript, strconv.Itoa(routers)}
	// Not bound to ctx: an interrupt closes the chain, in order.
	cmd := exec.Command("unshare", command...) //nolint:noctx // see above
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	cmd.ExtraFiles = []*os.File{its}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL} // Ctrl-C is for us alone
	err = cmd.Start()
	_ = its.Close()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	c.undo.Push(func() error { return errors.Join(control.Close(), cmd.Wait()) })
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	namespaces, err := receiveFiles(control)
	if err != nil {
		// it has ended: all is said
		return nil, fmt.Errorf("%w: %s", errors.Join(err, c.Close()), lastLine(complaint.Bytes()))
	}
	for _, ns := range namespaces {
		c.undo.Push(ns.Close)
	}
	c.Left, c.Right = ends(namespaces[0], namespaces[1], routers)
	if routers > 0 {
		c.First = namespaces[2]
	}
	return c, ctx.Err()
}

func socketPair() (ours, its *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// receiveFiles waits for open files that the other side sends.
func receiveFiles(socket *os.File) ([]*os.File, error) {
	const most = 3
	data, control := make([]byte, 16), make([]byte, unix.CmsgSpace(most*4))
	n, size, _, _, err := unix.Recvmsg(int(socket.Fd()), data, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait for namespaces: %w", err)
	}
	if n == 0 {
		return nil, errors.New("it ended early")
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receive namespaces: %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, fmt.Errorf("receive namespaces: %w", err)
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "namespace"))
	}
	return files, nil
}
