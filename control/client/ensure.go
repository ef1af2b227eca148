package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EnsureOptions say where a server is, and how to start it.
type EnsureOptions struct {
	Socket  string   // where it listens
	Command []string // that starts it, detached; typically {os.Executable(), "server", "--exit-when-idle", ...}
	LogFile string   // gets the standard output and error of a started server
}

// startTimeout bounds the start of a server: etcd, and the adoption of what runs.
const startTimeout = time.Minute

// EnsureServer connects to the server, and starts one where none runs.
func EnsureServer(ctx context.Context, opt EnsureOptions) (*Client, error) {
	c, err := Dial(ctx, opt.Socket)
	if !errors.Is(err, ErrNoServer) {
		return c, err
	}
	if err := startServer(ctx, opt); err != nil {
		// Another process may have started a server at the same moment: then ours has ended.
		if c, dialErr := Dial(ctx, opt.Socket); dialErr == nil {
			return c, nil
		}
		return nil, err
	}
	return Dial(ctx, opt.Socket)
}

// startServer starts a server that outlives this process, and waits until it says that it is ready.
func startServer(ctx context.Context, opt EnsureOptions) error {
	if err := os.MkdirAll(filepath.Dir(opt.LogFile), 0o755); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	log, err := os.OpenFile(opt.LogFile, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	notify, err := listenReady(filepath.Dir(opt.Socket))
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer os.RemoveAll(filepath.Dir(notify.LocalAddr().String()))
	defer notify.Close()

	cmd := exec.CommandContext(context.WithoutCancel(ctx), opt.Command[0], opt.Command[1:]...) // it outlives ctx
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// What the caller has opened, such as a lock (`flock FILE pergola up`), the server would hold as long as it
	// runs.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("start the server: keep the caller's files from it: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := make(chan struct{})
	go waitReady(notify, ready)
	select {
	case <-ready:
		return nil
	case err := <-ended:
		return fmt.Errorf("start the server: it ended at once (%w):\n%s", errorOr(err), lastLines(log, begin))
	case <-time.After(startTimeout):
		return fmt.Errorf("start the server: not ready within %v; its log is %s", startTimeout, opt.LogFile)
	case <-ctx.Done():
		return ctx.Err() // the start goes on: the server may be used later
	}
}

func errorOr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// listenReady opens a socket for the readiness protocol of systemd (sd_notify), in a directory of its own below another
// one, which the caller removes. The server may be in another network namespace, from which it reaches no abstract
// socket.
func listenReady(below string) (*net.UnixConn, error) {
	if err := os.MkdirAll(below, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(below, "start-")
	if err != nil {
		return nil, err
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return c, nil
}

// waitReady closes ready when READY=1 comes; it ends when the socket is closed.
func waitReady(notify *net.UnixConn, ready chan<- struct{}) {
	buffer := make([]byte, 4096)
	for {
		n, err := notify.Read(buffer)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(buffer[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				close(ready)
				return
			}
		}
	}
}

// lastLines gives the last lines that were written to a log from an offset on, without the word by which the server
// begins its error: they become a part of another one.
func lastLines(log *os.File, begin int64) string {
	text, err := io.ReadAll(io.NewSectionReader(log, begin, 1<<20))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const most = 10
	lines = lines[max(0, len(lines)-most):]
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "error: ")
	}
	return strings.Join(lines, "\n")
}
