package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// clusterGrid is 10 by 10 routers on a cluster of five machines, which are namespaces of this one.
func clusterGrid(ctx context.Context, l *lab) (_ []row, err error) {
	if err := l.stop(); err != nil { // nothing but the cluster shall run
		return nil, err
	}
	dir := "--dir=" + filepath.Join(l.dir, "cluster")
	defer func() { // also when the time is up
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, l.pergola(clean, "dev", "cluster", "down", dir))
	}()
	if err := l.pergola(ctx, "dev", "cluster", "up", "-n", "5", "--servers", "3", dir); err != nil {
		return nil, err
	}
	t := gridOf(10, "frr")
	file, err := l.file(t)
	if err != nil {
		return nil, err
	}
	inside := func(args ...string) error {
		return l.pergola(ctx, append([]string{"dev", "cluster", "exec", dir, "h1", "--", "pergola"}, args...)...)
	}
	var up, down []float64
	for range l.rounds {
		var u, d float64
		if u, err = timed(func() error { return inside("up", file, "--wait") }); err != nil {
			break
		}
		if err = inside("exec", "-s", t.name, t.first, "--", "ping", "-c1", "-W5", t.last); err != nil {
			break
		}
		if d, err = timed(func() error { return inside("down", t.name) }); err != nil {
			break
		}
		up, down = append(up, u), append(down, d)
	}
	return []row{
		{What: "10x10 grid of frr routers over 5 machines (namespaces), OSPF: up to converged", Unit: "s", Values: up, Most: 45},
		{What: "10x10 grid of frr routers over 5 machines: down", Unit: "s", Values: down},
	}, err
}
