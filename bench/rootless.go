package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/model/slice"
)

// ordinaryUser is the id of a user that no machine has.
const ordinaryUser = 61502

// user is an ordinary user, who has a server of their own.
type user struct {
	dir    string // home, session, and the program: the lab's may be where other users do not get
	binary string
}

func (l *lab) newUser() (user, error) {
	u := user{dir: filepath.Join(l.dir, "user")}
	u.binary = filepath.Join(u.dir, "pergola")
	for _, dir := range []string{u.dir, u.session()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return u, err
		}
		if err := os.Chown(dir, ordinaryUser, ordinaryUser); err != nil {
			return u, err
		}
	}
	return u, copyProgram(l.binary, u.binary)
}

func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	return target.Close()
}

func (u user) session() string { return filepath.Join(u.dir, "session") }

func (u user) pergola(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, u.binary, args...)
	cmd.Dir = u.dir
	cmd.Env = []string{"HOME=" + u.dir, "XDG_RUNTIME_DIR=" + u.session(), "NO_COLOR=1",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	return run(cmd)
}

// up writes a topology, brings it up, and gives the processes of two nodes.
func (u user) up(ctx context.Context, t topo, address string) (pair, error) {
	file := filepath.Join(u.dir, t.name+".yaml")
	if err := os.WriteFile(file, []byte(t.yaml), 0o644); err != nil {
		return pair{}, err
	}
	if _, err := u.pergola(ctx, "up", file, "--wait"); err != nil {
		return pair{}, err
	}
	out, err := u.pergola(ctx, "node", "ls", t.name, "--json")
	if err != nil {
		return pair{}, err
	}
	var nodes map[string]slice.NodeStatus
	err = json.Unmarshal(out, &nodes)
	return pair{client: nodes[t.first].PID, server: nodes[t.last].PID, address: address}, err
}

// chainOf is two hosts with so many routers of BIRD between them; none: one link.
func chainOf(routers int) topo {
	var b strings.Builder
	fmt.Fprintf(&b, "name: chain%d\naddressing: {ipv6: false}\nnodes:\n  a:\n  b:\n", routers)
	row := []string{"a"}
	for i := range routers {
		fmt.Fprintf(&b, "  r%d: {daemon: bird, routing: ospf}\n", i+1)
		row = append(row, fmt.Sprintf("r%d", i+1))
	}
	b.WriteString("links:\n")
	for i, from := range row {
		if i+1 < len(row) {
			fmt.Fprintf(&b, "  - [%s, %s]\n", from, row[i+1])
		}
	}
	last := row[len(row)-1]
	fmt.Fprintf(&b, "  - {ends: [%s, b], addresses: {b: 192.0.2.2/24, %[1]s: 192.0.2.1/24}}\n", last)
	return topo{name: fmt.Sprintf("chain%d", routers), yaml: b.String(), first: "a", last: "b"}
}

// rootless compares networks of an ordinary user, which kernels forward, with the same ones of root.
func rootless(ctx context.Context, l *lab) (rows []row, err error) {
	u, err := l.newUser()
	if err != nil {
		return nil, err
	}
	defer func() {
		if _, downErr := u.pergola(context.WithoutCancel(ctx), "down", "--all", "--purge"); err == nil {
			err = downErr
		}
	}()
	for _, routers := range []int{0, 8} {
		some, err := l.rootlessChain(ctx, u, routers)
		rows = append(rows, some...)
		if err != nil {
			return rows, err
		}
	}
	abilene, err := l.rootlessAbilene(ctx, u)
	return append(rows, abilene), err
}

func (l *lab) rootlessChain(ctx context.Context, u user, routers int) (rows []row, err error) {
	const address = "192.0.2.2"
	t := chainOf(routers)
	theirs, err := u.up(ctx, t, address)
	if err != nil {
		return nil, err
	}
	ours, err := l.chain(ctx, t, address)
	if err != nil {
		return nil, err
	}
	what := "one link"
	if routers > 0 {
		what = fmt.Sprintf("%d routers", routers)
	}
	for _, m := range []struct {
		row     row
		measure func(pair, context.Context) (float64, error)
	}{
		{row{What: "a user's network: round trip past " + what + " (ICMP echo)", Unit: "us"}, pair.icmp},
		{row{What: "a user's network: TCP past " + what, Unit: "Gbit/s", MoreIsBetter: true}, pair.iperf},
	} {
		m.row.Against = "root's"
		window := func(p pair) func(context.Context) (float64, error) {
			return func(ctx context.Context) (float64, error) { return m.measure(p, ctx) }
		}
		a := &rounds.Probe{What: "the user's", Window: window(theirs)}
		b := &rounds.Probe{What: "root's", Window: window(ours)}
		runner := rounds.Runner{Counts: rounds.Counts{Wanted: windows * l.rounds}}
		err := runner.Run(ctx, []*rounds.Probe{a, b})
		m.row.Values, m.row.Other = rounds.Both(a.Samples, b.Samples)
		rows = append(rows, m.row)
		if err != nil {
			return rows, err
		}
	}
	if _, err := u.pergola(ctx, "down", t.name); err != nil {
		return rows, err
	}
	return rows, l.pergola(ctx, "down", t.name)
}

// chain brings a topology up as root.
func (l *lab) chain(ctx context.Context, t topo, address string) (pair, error) {
	file, err := l.file(t)
	if err != nil {
		return pair{}, err
	}
	if err := l.start(ctx); err != nil {
		return pair{}, err
	}
	if err := l.pergola(ctx, "up", file, "--wait"); err != nil {
		return pair{}, err
	}
	nodes, err := l.nodes(ctx, t.name)
	return pair{client: nodes[t.first].PID, server: nodes[t.last].PID, address: address}, err
}

// rootlessAbilene times both from no server to converged, in turn.
func (l *lab) rootlessAbilene(ctx context.Context, u user) (row, error) {
	r := row{What: "a user's Abilene, 11 FRR routers, OSPF: no server to converged", Unit: "s",
		Against: "root's"}
	text, err := os.ReadFile("examples/abilene.graphml")
	if err != nil {
		return r, err
	}
	file := filepath.Join(u.dir, "abilene.graphml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return r, err
	}
	for range l.rounds {
		took, err := timed(func() error {
			_, err := u.pergola(ctx, "up", file, "--name", "abilene", "--daemon", "frr", "--routing",
				"ospf", "--wait")
			return err
		})
		if err != nil {
			return r, err
		}
		if _, err := u.pergola(ctx, "down", "abilene"); err != nil {
			return r, err
		}
		up, _, err := l.abileneOnce(ctx, file, false)
		if err != nil {
			return r, err
		}
		r.Values, r.Other = append(r.Values, took), append(r.Other, up)
	}
	return r, nil
}
