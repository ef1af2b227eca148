package vnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Node is a namespace.
type Node struct {
	Name  string
	NS    *os.File
	index map[string]int // of its interfaces

	nl      *rtnl.Conn
	mu      sync.Mutex // guards changes
	changes *rtnl.Batch
}

func newNode(name string) (*Node, error) {
	n := &Node{Name: name, index: map[string]int{"lo": 1}}
	err := netns.New(func() (err error) {
		if n.NS, err = netns.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if n.nl, err = rtnl.Open(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		n.changes = n.nl.Batch()
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make node %s: %w", name, err), n.close())
	}
	return n, nil
}

// close lets go of the namespace: with its last holder it ends.
func (n *Node) close() error {
	var errs []error
	if n.nl != nil {
		errs = append(errs, n.nl.Close())
	}
	if n.NS != nil {
		errs = append(errs, n.NS.Close())
	}
	return errors.Join(errs...)
}

// Do calls f in the node's namespace. What package netns says of goroutines holds.
func (n *Node) Do(f func() error) error { return netns.In(n.NS, f) }

// Index gives the ifindex of an interface, in the node.
func (n *Node) Index(name string) (int, error) {
	i, ok := n.index[name]
	if !ok {
		return 0, fmt.Errorf("find interface %s of node %s: there is none", name, n.Name)
	}
	return i, nil
}

// Apply changes the node's kernel, in one go. It ends at the first thing that fails; what came before is done.
func (n *Node) Apply(changes ...Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range changes {
		m, err := c.message(n)
		if err == nil {
			err = n.changes.Add(c, m.request())
		}
		if err != nil {
			return fmt.Errorf("change node %s: %v: %w", n.Name, c, errors.Join(err, n.changes.Flush()))
		}
	}
	if err := n.changes.Flush(); err != nil {
		return fmt.Errorf("change node %s: %w", n.Name, err)
	}
	return nil
}

// Command gives a command that will run in the node's network namespace, and in no other of its own.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	ns := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.NS.Fd())
	return exec.CommandContext(ctx, "nsenter", append([]string{ns, "--", name}, args...)...)
}

// Exec runs a command in the node and gives what it printed.
func (n *Node) Exec(ctx context.Context, name string, args ...string) (string, error) {
	out, err := n.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s in %s: %w: %s", name, n.Name, err, out)
	}
	return string(out), nil
}

// SetSysctl sets a kernel parameter, by its path below /proc/sys/net.
func (n *Node) SetSysctl(path string, value int) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(strconv.Itoa(value)), 0) })
}

// here names the calling thread where a process is asked for: it has its own network namespace, and the kernel shows
// threads below /proc as it shows processes.
func here() int { return unix.Gettid() }
