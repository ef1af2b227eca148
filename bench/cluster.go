package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// clusterGrid is 10 by 10 routers on a cluster of five machines, which are namespaces of this one.
func clusterGrid(ctx context.Context, l *lab) (_ []row, err error) {
	if err := l.stop(); err != nil { // nothing but the cluster shall run
		return nil, err
	}
	t := gridOf(10, "frr")
	file, err := l.file(t)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(l.cluster()), 0o700); err != nil {
		return nil, err
	}
	if err := l.pergola(ctx, "dev", "cluster", "up", "-n", "5", "--servers", "3", "--dir",
		l.cluster()); err != nil {
		return nil, err
	}
	var up, down []float64
	for range l.rounds {
		var u, d float64
		if u, d, err = l.clusterOnce(ctx, t, file); err != nil {
			break
		}
		up, down = append(up, u), append(down, d)
	}
	if err == nil { // else reset does it
		err = l.removeCluster(ctx)
	}
	return []row{
		{What: "10x10 grid of frr routers over 5 machines (namespaces), OSPF: up to converged", Unit: "s",
			Values: up, Most: 45},
		{What: "10x10 grid of frr routers over 5 machines: down", Unit: "s", Values: down},
	}, err
}

func (l *lab) clusterOnce(ctx context.Context, t topo, file string) (up, down float64, err error) {
	inside := func(args ...string) error {
		return l.pergola(ctx, append([]string{"dev", "cluster", "exec", "--dir", l.cluster(), "h1", "--",
			"pergola"}, args...)...)
	}
	if up, err = timed(func() error { return inside("up", file, "--wait") }); err != nil {
		return 0, 0, err
	}
	if err := inside("exec", "-s", t.name, t.first, "--", "ping", "-c1", "-W5", t.last); err != nil {
		return 0, 0, err
	}
	down, err = timed(func() error { return inside("down", t.name) })
	return up, down, err
}

// cluster is the directory of the machines. A command that changes them locks the directory above it; the
// run's own directory is locked by the run.
func (l *lab) cluster() string { return filepath.Join(l.dir, "testbeds", "cluster") }

func (l *lab) hasCluster() bool {
	_, err := os.Lstat(l.cluster())
	return !errors.Is(err, os.ErrNotExist)
}

func (l *lab) removeCluster(ctx context.Context) error {
	if !l.hasCluster() {
		return nil
	}
	return l.pergola(ctx, "dev", "cluster", "down", "--dir", l.cluster())
}
