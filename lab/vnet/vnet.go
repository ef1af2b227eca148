// Package vnet makes virtual networks of bare network namespaces: no containers, no server, but the same ports, wires
// and data path, and the same mirror of the routers' kernels. Tests and benchmarks of the data path use it: a network
// of forty routers exists after a fraction of a second.
//
//	platform, err := vnet.Open(ctx, dir, log)  // a host network, with the fast path's maps
//	net, err := platform.New(ctx, plan)        // routers, hosts, links
//	err = net.FastPath(ctx, true)            // from here on frames walk
//
// Several networks, each a slice, can stand on the same platform.
package vnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/host/wire"
)

// Platform carries networks: a host network with its data path, and the mirror of routers in it.
type Platform struct {
	HostNetwork *wire.HostNetwork
	dir         string
	fast        *fastPath
}

// Open makes a platform below dir, a directory of its own.
func Open(ctx context.Context, dir string, log *slog.Logger) (*Platform, error) {
	s, err := wire.Open(ctx, wire.Config{StateDir: dir})
	if err != nil {
		return nil, err
	}
	g := &Platform{HostNetwork: s, dir: dir}
	if g.fast, err = openFastPath(s, log); err != nil {
		return nil, errors.Join(fmt.Errorf("open the fast path: %w", err), s.Remove(context.WithoutCancel(ctx)))
	}
	return g, nil
}

// Close removes everything, with the networks that still stand.
func (g *Platform) Close() error {
	return errors.Join(g.fast.close(), g.HostNetwork.Remove(context.Background()))
}

// Network is one that exists.
type Network struct {
	Plan     Plan
	Nodes    map[string]*Node
	platform *Platform
	ports    map[endpoint]port
	off      bool // as FastPath was told last
}

// endpoint names a node's interface.
type endpoint struct{ node, name string }

// port is the substrate's end of a node's interface.
type port struct {
	name  string
	index int // in the substrate
	inner int // of the node's end, there
}

// New makes a network. Routers forward in their kernels until FastPath says otherwise.
func (g *Platform) New(ctx context.Context, plan Plan) (*Network, error) {
	n := &Network{Plan: plan, Nodes: map[string]*Node{}, platform: g, ports: map[endpoint]port{}}
	if err := n.make(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make network %d: %w", plan.Slice, err), n.Close())
	}
	return n, nil
}

// New makes a network with a platform of its own, which is removed with it.
func New(ctx context.Context, dir string, log *slog.Logger, plan Plan) (*Network, func() error, error) {
	g, err := Open(ctx, dir, log)
	if err != nil {
		return nil, nil, err
	}
	n, err := g.New(ctx, plan)
	if err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	return n, func() error { return errors.Join(n.Close(), g.Close()) }, nil
}

// Close removes the network.
func (n *Network) Close() error {
	n.platform.fast.remove(n)
	errs := []error{n.platform.HostNetwork.DeleteSlice(context.Background(), n.Plan.Slice)}
	for _, node := range n.Nodes {
		errs = append(errs, node.close())
	}
	return errors.Join(errs...)
}

func (n *Network) make(ctx context.Context) error {
	if err := n.Plan.check(); err != nil {
		return err
	}
	var mu sync.Mutex // guards n.Nodes
	err := parallel(n.Plan.Nodes, func(p *NodePlan) error {
		node, err := newNode(p.Name)
		if err != nil {
			return err
		}
		mu.Lock()
		n.Nodes[p.Name] = node
		mu.Unlock()
		return n.prepare(ctx, node, p)
	})
	if err == nil {
		err = n.link(ctx)
	}
	if err == nil {
		err = n.learn(ctx)
	}
	for _, l := range n.Plan.Links {
		if err == nil {
			err = n.lineCards(l)
		}
	}
	if err != nil {
		return err
	}
	return parallel(n.Plan.Nodes, func(p *NodePlan) error { return n.configure(p) })
}

// prepare sets what new interfaces inherit.
func (n *Network) prepare(ctx context.Context, node *Node, p *NodePlan) error {
	return node.Do(func() error {
		return n.platform.HostNetwork.ConfigureNode(ctx, here(),
			wire.Node{Router: p.Router, Sysctls: p.Sysctls})
	})
}

// parallel calls f for all, as many at a time as there are processors: the kernel serialises most of it.
func parallel[T any](all []T, f func(*T) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for i := range all {
		g.Go(func() error { return f(&all[i]) })
	}
	return g.Wait()
}

// Log is a logger that drops all messages.
func Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
