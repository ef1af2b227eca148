package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
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
		var u, d float64
		if u, d, err = l.abileneOnce(ctx, file, round == 0); err != nil {
			break
		}
		up, down = append(up, u), append(down, d)
	}
	return []row{
		{What: "Abilene, 11 FRR routers, OSPF: no server to converged", Unit: "s", Values: up, Most: 8},
		{What: "Abilene: down", Unit: "s", Values: down},
	}, err
}

func (l *lab) abileneOnce(ctx context.Context, file string, check bool) (up, down float64, err error) {
	if err := l.stop(); err != nil {
		return 0, 0, err
	}
	up, err = timed(func() error {
		if err := l.start(ctx); err != nil {
			return err
		}
		return l.pergola(ctx, "up", file, "--name", "abilene", "--daemon", "frr", "--routing", "ospf", "--wait")
	})
	if err == nil && check {
		err = l.pergola(ctx, "check", "abilene")
	}
	if err != nil {
		return 0, 0, err
	}
	down, err = timed(func() error { return l.pergola(ctx, "down", "abilene") })
	return up, down, err
}

// grid is 10 by 10 routers.
func grid(ctx context.Context, l *lab, daemon string, most float64) ([]row, error) {
	t := gridOf(10, daemon)
	up, down, err := l.upDown(ctx, t, "--wait")
	return []row{
		{What: fmt.Sprintf("10x10 grid of %s routers, OSPF: up to converged", daemon), Unit: "s", Values: up,
			Most: most},
		{What: fmt.Sprintf("10x10 grid of %s routers: down", daemon), Unit: "s", Values: down},
	}, err
}

// upDown times all rounds of one topology; with an error come those before it.
func (l *lab) upDown(ctx context.Context, t topo, flags ...string) (up, down []float64, err error) {
	for range l.rounds {
		u, d, err := l.upDownOnce(ctx, t, flags...)
		if err != nil {
			return up, down, err
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
	if up, err = timed(func() error {
		return l.pergola(ctx, append([]string{"up", file}, flags...)...)
	}); err != nil {
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
	var gaveUp, neverUp bool // in any round
	var err error
	for round := range l.rounds {
		var u, d float64
		if u, d, err = l.upDownOnce(ctx, t); err != nil {
			break
		}
		up, down = append(up, u), append(down, d)
		if round < l.rounds-rounds {
			continue
		}
		var m mininetTimes
		if m, err = runMininet(ctx, t.mininet, n); err != nil {
			break
		}
		if m.GaveUp {
			fmt.Fprintf(os.Stderr, "    Mininet's %s,%d: gave up after %v\n", t.mininet, n, mininetTimeout)
		}
		gaveUp, neverUp = gaveUp || m.GaveUp, neverUp || m.GaveUp && !m.wasUp
		if m.Up > 0 {
			theirUp = append(theirUp, m.Up)
		}
		if m.Down > 0 {
			theirDown = append(theirDown, m.Down)
		}
	}
	graph := map[string]string{"single": "one switch", "linear": fmt.Sprintf("a line of %d switches", n)}[t.mininet]
	rows := []row{{What: fmt.Sprintf("%d hosts on %s: up", n, graph), Unit: "s", Values: up, Most: most.up}}
	if len(theirUp) > 0 {
		rows[0].Against, rows[0].Other, rows[0].Ratio, rows[0].GaveUp = "Mininet", theirUp, 2, neverUp
	}
	rows = append(rows, row{What: fmt.Sprintf("%d hosts on %s: down", n, graph), Unit: "s", Values: down,
		Most: most.down})
	if len(theirDown) > 0 {
		rows[1].Against, rows[1].Other, rows[1].Ratio, rows[1].GaveUp = "Mininet", theirDown, 5, gaveUp
	}
	return rows, err
}

//go:embed mininet_times.py
var mininetScript []byte

// mininetTimes are seconds. Where Mininet was stopped, the last of them is what it took until then; 0: it did not
// come to that.
type mininetTimes struct {
	Up, Down float64
	GaveUp   bool
	wasUp    bool
}

// mininetTimeout is when one run is stopped.
const mininetTimeout = 4 * time.Minute

// runMininet times Mininet in a network, a mount and a PID namespace of its own: what it makes there it removes
// itself, and whatever it does not goes with the namespaces.
func runMininet(ctx context.Context, graph string, n int) (m mininetTimes, err error) {
	limited, cancel := context.WithTimeout(ctx, mininetTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc",
		"--kill-child", "/usr/bin/python3", "-c", string(mininetScript), graph, fmt.Sprint(n))
	cmd.WaitDelay = 10 * time.Second // processes that were killed with it may be slow to close its output
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	begun := time.Now()
	out, err := cmd.Output()
	for line := range bytes.Lines(out) {
		if err := json.Unmarshal(line, &m); err != nil {
			return m, fmt.Errorf("parse what Mininet's %s,%d says: %w", graph, n, err)
		}
	}
	m.wasUp = m.Up > 0
	switch {
	case err == nil:
		return m, nil
	case limited.Err() == nil || ctx.Err() != nil:
		return m, fmt.Errorf("run Mininet's %s,%d: %w: %s", graph, n, err, bytes.TrimSpace(complaint.Bytes()))
	}
	m.GaveUp = true
	if took := time.Since(begun).Seconds(); m.wasUp {
		m.Down = took - m.Up
	} else {
		m.Up = took
	}
	return m, nil
}
