package differential

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// backlog says when the processor has nothing left to do: frames wait for each next hop in a queue of the CPU, and a
// thread that runs on that CPU and finds it empty knows that all it sent has arrived where it can. Behind XDP they
// wait in a queue of the device instead, which cannot be seen; but what is not done with them at once is left to
// ksoftirqd, which then is running. Where its threads cannot be seen, as in a container, it has to be enough that CPUs
// have handled no more packets since the last look.
type backlog struct {
	file      *os.File
	ksoftirqd []*os.File // their states
	softirqs  *os.File
	buf       []byte
}

func openBacklog() (*backlog, error) {
	f, err := os.Open("/proc/net/softnet_stat")
	if err != nil {
		return nil, err
	}
	softirqs, err := os.Open("/proc/softirqs")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := &backlog{file: f, softirqs: softirqs, buf: make([]byte, 1<<16)}
	if b.ksoftirqd, err = openKsoftirqd(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// openKsoftirqd opens the states of all ksoftirqd. Where these threads are in no PID namespace of the test's, tools/pen
// hands them over.
func openKsoftirqd() (all []*os.File, err error) {
	for _, fd := range strings.Fields(os.Getenv("PERGOLA_TEST_KSOFTIRQD")) {
		n, err := strconv.Atoi(fd)
		if err == nil {
			unix.CloseOnExec(n) // and it stays open, for the next test
			n, err = unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("PERGOLA_TEST_KSOFTIRQD: %w", err)
		}
		all = append(all, os.NewFile(uintptr(n), "ksoftirqd"))
	}
	if len(all) > 0 {
		return all, nil
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(comm, []byte("ksoftirqd/")) {
			continue // it may be gone
		}
		stat, err := os.Open(filepath.Join(filepath.Dir(name), "stat"))
		if err != nil {
			return nil, err
		}
		all = append(all, stat)
	}
	return all, nil
}

func (b *backlog) close() error {
	errs := []error{b.file.Close(), b.softirqs.Close()}
	for _, f := range b.ksoftirqd {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// drained waits until the queues of all CPUs are empty.
func (b *backlog) drained() error {
	rest := 20 * time.Microsecond // lets ksoftirqd have the CPU
	handled := ""
	if len(b.ksoftirqd) == 0 {
		rest = 100 * time.Microsecond
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		n, err := b.length()
		if err != nil {
			return err
		}
		running, err := b.running()
		if err != nil {
			return err
		}
		if len(b.ksoftirqd) == 0 {
			before := handled
			if handled, err = b.handled(); err != nil {
				return err
			}
			running = handled != before
		}
		if n == 0 && !running {
			return nil
		}
		pause(rest)
	}
	return errors.New("wait for the CPUs' backlog to drain: other traffic never ends")
}

func (b *backlog) length() (total uint64, err error) {
	n, err := b.file.ReadAt(b.buf, 0)
	if n == 0 {
		return 0, fmt.Errorf("read the CPUs' backlog: %w", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b.buf[:n])), "\n") {
		words := strings.Fields(line)
		if len(words) < 12 {
			return 0, errors.New("read the CPUs' backlog: this kernel does not say it")
		}
		v, err := strconv.ParseUint(words[11], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPUs' backlog: %w", err)
		}
		total += v
	}
	return total, nil
}

// handled says how often each CPU has handled packets.
func (b *backlog) handled() (string, error) {
	n, err := b.softirqs.ReadAt(b.buf, 0)
	for line := range strings.Lines(string(b.buf[:n])) {
		if strings.HasPrefix(strings.TrimSpace(line), "NET_RX:") {
			return line, nil
		}
	}
	return "", fmt.Errorf("read how often CPUs have handled packets: %w", cmp.Or(err, errors.New("no NET_RX")))
}

// running reports whether a ksoftirqd is: its state, behind the name in brackets, is R.
func (b *backlog) running() (bool, error) {
	for _, f := range b.ksoftirqd {
		n, err := f.ReadAt(b.buf, 0)
		if n == 0 {
			return false, fmt.Errorf("read the state of ksoftirqd: %w", err)
		}
		if bytes.Contains(b.buf[:n], []byte(") R ")) {
			return true, nil
		}
	}
	return false, nil
}
