// Package wire builds the links of virtual networks on one machine, through netlink and the data path.
//
// Everything lives in the substrate's namespace: a network namespace of its own, pinned below the state directory, with
// a bpf file system beside it that holds the data path. Both, with all in them, are the host network: this machine's
// part of the substrate. Seen from that namespace, a network looks like this:
//
//	node ── veth ── port ═══ port ── veth ── node     two ports joined: the data path hands frames over
//	node ── veth ── port ── switch ── cable ── switch a switch is a bridge, a cable a veth pair between two
//	node ── veth ── port ═══ queue ── switch          a port whose frames wait in a queue before the switch
//	host ── veth ── port                              the other end is in the machine's own namespace
//	node ── veth ── port ═══ proxy port ── uplink       a tunnel to a node on another machine; see Tunnel
//
// Errors name no device that the call names: the caller knows it by the name of what it is for.
//
// Every device carries a mark in its alias (see mark), written when the device is complete: what has none was left half
// made by a process that died, and whoever finds it deletes it. Nothing is remembered in memory but qdiscs that have
// not changed (see treeCache): each call asks the kernel, each may be repeated, and each copes with what an earlier one
// left when it was killed.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Errors on which callers decide.
var (
	ErrNoDevice = errors.New("no such device")
	ErrNotWired = errors.New("neither joined to a port nor attached to a switch")
)

// Config says where a host network lives.
type Config struct {
	// StateDir must not be shared with another host network.
	StateDir string
	// Plain makes a host network without programs of eBPF, which only root may load: with links between nodes of
	// this machine, and without the fast path, packet programs, classes, policers and tunnels.
	Plain bool
	// Deleted is called soon after devices were deleted from the substrate, by any process. It may be nil.
	Deleted func()
	Log     *slog.Logger // nil: nowhere
}

// HostNetwork is this machine's part of the substrate, open. Its methods may be called concurrently.
type HostNetwork struct {
	paths paths
	ns    *os.File           // its namespace
	host  *os.File           // the machine's
	nl    *conn              // in its namespace
	data  *datapath.DataPath // nil where the network is plain
	trees *treeCache
	watch *watch // nil: there is none

	forwarder forwarder // data, or what is in its place

	programs *node.Nodes // with packet programs; nil where the network is plain

	handover bool // the way from XDP to tc is there; guarded by wiring
	// tapping keeps a node's number from becoming another one's while its tap device is made or deleted.
	tapping sync.Mutex

	// wiring serialises what reads and then writes the records of two ports, or a port and its queue.
	wiring sync.Mutex
	// held are the indexes that Hold keeps from new devices.
	held     atomic.Pointer[map[int]bool]
	underlay underlay
	// records keeps a record from being forgotten, because its device is gone, just when another got its index.
	records sync.Mutex
}

// paths are the places below a state directory.
type paths struct {
	stateDir  string
	nsDir, ns string // file on which the namespace is mounted
	bpf       string // mount point of the bpf file system
}

func pathsOf(stateDir string) paths {
	dir := filepath.Join(stateDir, "netns")
	return paths{
		stateDir: stateDir, nsDir: dir, ns: filepath.Join(dir, "substrate"),
		bpf: filepath.Join(stateDir, "bpf"),
	}
}

// Present reports whether a host network, or what is left of one, is below the state directory.
func Present(stateDir string) bool {
	p := pathsOf(stateDir)
	for _, path := range []string{p.nsDir, p.bpf} {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// Open adopts the host network below the state directory, or makes it. The machine's namespace is that of the caller.
// On a kernel that is too old for it, the error is a *datapath.MissingHelpersError, and nothing was made.
func Open(ctx context.Context, c Config) (*HostNetwork, error) {
	if !c.Plain {
		if err := datapath.Supported(); err != nil { // before anything is made
			return nil, fmt.Errorf("open host network: %w", err)
		}
	}
	s := &HostNetwork{paths: pathsOf(c.StateDir)}
	made, err := s.paths.make(c.Plain)
	if err == nil {
		err = s.open(c)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("open host network: %w", errors.Join(err, s.Close()))
		if made {
			err = errors.Join(err, Remove(context.WithoutCancel(ctx), c.StateDir))
		}
		return nil, err
	}
	return s, nil
}

func (s *HostNetwork) open(c Config) (err error) {
	if s.host, err = netns.Here(); err != nil {
		return err
	}
	if s.ns, err = netns.Open(s.paths.ns); err != nil {
		return err
	}
	if s.nl, err = dial(s.ns); err != nil {
		return err
	}
	if s.trees, err = openTreeCache(s.ns); err != nil {
		return err
	}
	if c.Deleted != nil {
		if s.watch, err = startWatch(s.ns, c.Deleted); err != nil {
			return err
		}
	}
	err = netns.In(s.ns, func() error {
		quiet() // again: br_netfilter may have been loaded since, and then asks for every bridge's frames
		return nil
	})
	if err != nil {
		return err
	}
	if c.Plain {
		s.forwarder = &plain{s.nl}
		return nil
	}
	return s.openDataPath(c.Log)
}

func (s *HostNetwork) openDataPath(log *slog.Logger) error {
	err := netns.In(s.ns, func() (err error) {
		s.data, err = datapath.Open(s.paths.bpf, clsact{s.nl})
		return err
	})
	if err != nil {
		return err
	}
	s.forwarder = s.data
	nodes := s.data.Nodes()
	nodes.Log, nodes.Cores = log, fastPathCores()
	if s.programs, err = node.Open(nodes); err != nil {
		return err
	}
	if err := s.openHandover(); err != nil {
		return err
	}
	return s.adopt()
}

// Close lets go of the host network, which stays and works on.
func (s *HostNetwork) Close() error {
	var errs []error
	if s.programs != nil {
		errs = append(errs, s.programs.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	if s.watch != nil {
		errs = append(errs, s.watch.close())
	}
	if s.trees != nil {
		errs = append(errs, s.trees.close())
	}
	if s.nl != nil {
		s.nl.close()
	}
	for _, f := range []*os.File{s.ns, s.host} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Remove closes the host network and removes all of it.
func (s *HostNetwork) Remove(ctx context.Context) error {
	return errors.Join(s.Close(), Remove(ctx, s.paths.stateDir))
}

// Namespace is the path of the substrate's namespace, for those who look into it (captures).
func (s *HostNetwork) Namespace() string { return s.paths.ns }
