package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// limits are what is promised, in seconds; 0: nothing.
type limits struct{ up, down float64 }

// abilene goes from no server at all to converged routing.
func abilene(ctx context.Context, l *lab) ([]row, error) {
	file, err := filepath.Abs("examples/abilene.graphml")
	if err != nil {
		return nil, err
	}
	var up, down []float64
	for round := range l.rounds {
		if l.server != nil {
			if err := l.stop(); err != nil {
				return nil, err
			}
		}
		s, err := timed(func() error {
			if err := l.start(ctx); err != nil {
				return err
			}
			return l.pergola(ctx, "up", file, "--name", "abilene", "--daemon", "frr", "--routing", "ospf", "--wait")
		})
		if err != nil {
			return nil, err
		}
		up = append(up, s)
		if round == 0 {
			if err := l.pergola(ctx, "check", "abilene"); err != nil {
				return nil, err
			}
		}
		if s, err = timed(func() error { return l.pergola(ctx, "down", "abilene") }); err != nil {
			return nil, err
		}
		down = append(down, s)
	}
	return []row{
		{what: "Abilene, 11 FRR routers, OSPF: no server to converged", unit: "s", values: up, most: 8},
		{what: "Abilene: down", unit: "s", values: down},
	}, nil
}

// grid is 10 by 10 routers.
func grid(ctx context.Context, l *lab, daemon string, most float64) ([]row, error) {
	t := gridOf(10, daemon)
	up, down, err := l.upDown(ctx, t, "--wait")
	if err != nil {
		return nil, err
	}
	return []row{
		{what: fmt.Sprintf("10x10 grid of %s routers, OSPF: up to converged", daemon), unit: "s", values: up, most: most},
		{what: fmt.Sprintf("10x10 grid of %s routers: down", daemon), unit: "s", values: down},
	}, nil
}

// upDown times all rounds of one topology.
func (l *lab) upDown(ctx context.Context, t topo, flags ...string) (up, down []float64, err error) {
	for range l.rounds {
		u, d, err := l.upDownOnce(ctx, t, flags...)
		if err != nil {
			return nil, nil, err
		}
		up, down = append(up, u), append(down, d)
	}
	return up, down, nil
}

func (l *lab) upDownOnce(ctx context.Context, t topo, flags ...string) (up, down float64, err error) {
	if err := l.start(ctx); err != nil {
		return 0, 0, err
	}
	file, err := l.file(t)
	if err != nil {
		return 0, 0, err
	}
	if up, err = timed(func() error { return l.pergola(ctx, append([]string{"up", file}, flags...)...) }); err != nil {
		return 0, 0, err
	}
	if err := l.reach(ctx, t); err != nil {
		return 0, 0, err
	}
	down, err = timed(func() error { return l.pergola(ctx, "down", t.name) })
	return up, down, err
}

// hosts compares with Mininet on the same graph, round by round.
func hosts(ctx context.Context, l *lab, make func(int) topo, n int, most limits) ([]row, error) {
	t := make(n)
	rounds := l.rounds
	if t.mininet == "linear" && n >= 500 {
		rounds = 1 // Mininet takes minutes
	}
	var up, down, theirUp, theirDown []float64
	for round := range l.rounds {
		u, d, err := l.upDownOnce(ctx, t)
		if err != nil {
			return nil, err
		}
		up, down = append(up, u), append(down, d)
		if round < rounds {
			m, err := runMininet(ctx, t.mininet, n)
			if err != nil {
				return nil, err
			}
			theirUp, theirDown = append(theirUp, m.Up), append(theirDown, m.Down)
		}
	}
	graph := map[string]string{"single": "one switch", "linear": fmt.Sprintf("a line of %d switches", n)}[t.mininet]
	return []row{
		{what: fmt.Sprintf("%d hosts on %s: up", n, graph), unit: "s", values: up, most: most.up, against: "Mininet", other: theirUp, ratio: 2},
		{what: fmt.Sprintf("%d hosts on %s: down", n, graph), unit: "s", values: down, most: most.down, against: "Mininet", other: theirDown, ratio: 5},
	}, nil
}

//go:embed mininet_times.py
var mininetScript []byte

// mininetTimes are seconds.
type mininetTimes struct{ Up, Down float64 }

// runMininet times Mininet in a network and a mount namespace of its own: what it makes there it removes itself, and whatever it
// does not goes with the namespace.
func runMininet(ctx context.Context, graph string, n int) (mininetTimes, error) {
	var m mininetTimes
	script, err := os.CreateTemp("", "mininet*.py")
	if err != nil {
		return m, err
	}
	defer func() { _ = os.Remove(script.Name()) }()
	if _, err := script.Write(mininetScript); err != nil {
		return m, err
	}
	if err := script.Close(); err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
		"/usr/bin/python3", script.Name(), graph, fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("run Mininet's %s,%d: %w", graph, n, err)
	}
	return m, json.Unmarshal(out, &m)
}
