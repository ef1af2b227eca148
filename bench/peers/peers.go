// Package peers runs what packet programs are compared with: forwarders in user space. Those in C are compiled when
// they are needed; Click is used where it is installed.
package peers

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed c
var sources embed.FS

// Lifetime bounds a forwarder, should nobody end it.
const Lifetime = 10 * time.Minute

// Build compiles a program of this package, udp, ring, router or burner, into a directory, and gives its path.
func Build(ctx context.Context, dir, name string, flags ...string) (path string, err error) {
	for _, file := range []string{name + ".c", "peer.h"} {
		text, err := sources.ReadFile("c/" + file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, name)
	args := append([]string{"-O2", "-Wall", "-o", path, path + ".c"}, flags...)
	if out, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf(
			"compile %s.c (apt install gcc libc6-dev): %w: %s",
			name,
			err,
			bytes.TrimSpace(out),
		)
	}
	return path, nil
}

// Process is a forwarder that runs.
type Process struct {
	cmd    *exec.Cmd
	ended  chan error
	stderr buffer
}

// Start starts a program in a network namespace, and waits until it says that it is ready: by a line "ready", unless
// it says nothing, as Click does.
func Start(ctx context.Context, ns *os.File, silent bool, program string, args ...string) (_ *Process, err error) {
	p := &Process{ended: make(chan error, 1)}
	// Not bound to ctx: Stop ends it.
	p.cmd = exec.Command("nsenter", append([]string{ //nolint:noctx // see above
		fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), ns.Fd()), "--", program}, args...)...)
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string, 1)
	go func() {
		in := bufio.NewScanner(out)
		in.Scan()
		lines <- in.Text()
		for in.Scan() { // all of it has to be read
		}
		p.ended <- p.cmd.Wait()
	}()
	patience := 10 * time.Second
	if silent {
		patience = 500 * time.Millisecond
	}
	select {
	case line := <-lines:
		if line == "ready" {
			return p, nil
		}
	case <-time.After(patience):
		if silent {
			return p, nil
		}
	case <-ctx.Done():
	}
	return nil, errors.Join(fmt.Errorf("start %s: it is not ready: %s", filepath.Base(program), p.stderr.text()),
		p.Stop(), ctx.Err())
}

// Stop ends it.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.cmd, err)
	}
	err := <-p.ended
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("a forwarder ended by itself: %w: %s", err, p.stderr.text())
}

// buffer is what a process complains about; it is read while the process runs.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.data.String())
}

// Click finds the binary: where $CLICK says, or else in PATH.
func Click() (path string, err error) {
	if path = os.Getenv("CLICK"); path != "" {
		_, err = os.Stat(path)
	} else {
		path, err = exec.LookPath("click")
	}
	if err != nil {
		return "", errors.New("there is no Click: set $CLICK to its binary for user space " +
			"(https://github.com/kohler/click)")
	}
	return path, nil
}

// ClickRouter is the configuration of a router between two devices: addresses of the network go by out, from an
// Ethernet address to another.
func ClickRouter(in, out, network, from, to string) string {
	return fmt.Sprintf(`FromDevice(%s, PROMISC true, SNIFFER true, BURST 64)
	-> Classifier(12/0800)
	-> Strip(14)
	-> CheckIPHeader
	-> route :: StaticIPLookup(%s 0, 0.0.0.0/0 1);
route[0] -> DecIPTTL -> EtherEncap(0x0800, %s, %s) -> Queue(1000) -> ToDevice(%s, BURST 64);
route[1] -> Discard;
`, in, network, from, to, out)
}
