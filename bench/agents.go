package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
	machines "github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Goals of a server with many agents.
const (
	agentCount   = 1000
	agentMemory  = 512 // MiB of the server
	agentCores   = 0.5 // of the server, while nothing happens
	agentHandout = 2   // s until all have their parts
	agentIdle    = 20 * time.Second
	agentServer  = "127.91.0.1" // where the server listens
)

// manyAgents is one server with so many agents: sessions, and no machines behind them.
func manyAgents(ctx context.Context, l *lab) (rows []row, err error) {
	s, err := l.startMember(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	ctx, end := context.WithCancel(ctx)
	all := &crowd{dir: s.dir, has: map[string]time.Time{}, news: make(chan struct{}, 1)}
	defer all.tasks.Wait()
	defer end()
	if err := all.join(ctx, s); err != nil {
		return nil, err
	}
	memory := row{What: fmt.Sprintf("a server with %d agents: memory", agentCount), Unit: "MiB", Most: agentMemory}
	cores := row{What: fmt.Sprintf("a server with %d agents, nothing happens: cores", agentCount), Unit: "cores",
		Most: agentCores}
	handout := row{What: fmt.Sprintf("a network of %d nodes is stored, and %[1]d agents have their parts",
		agentCount), Unit: "s", Most: agentHandout}
	for range l.rounds {
		before, err := cpuSeconds(s.Pid)
		if err != nil {
			return rows, err
		}
		began := time.Now()
		select {
		case <-ctx.Done():
			return rows, ctx.Err()
		case <-time.After(agentIdle):
		}
		after, err := cpuSeconds(s.Pid)
		if err != nil {
			return rows, err
		}
		cores.Values = append(cores.Values, (after-before)/time.Since(began).Seconds())
		took, err := all.handOut(ctx, s)
		if err != nil {
			return rows, err
		}
		handout.Values = append(handout.Values, took)
		used, err := sum(fmt.Sprintf("/proc/%d/status", s.Pid), "VmRSS")
		if err != nil {
			return rows, err
		}
		memory.Values = append(memory.Values, used)
	}
	return append(rows, memory, cores, handout), nil
}

// clusterServer is a server of a cluster that was started for a measurement.
type clusterServer struct {
	*os.Process
	l      *lab
	dir    string
	socket string
	ended  chan error
}

func (l *lab) startMember(ctx context.Context) (*clusterServer, error) {
	dir := filepath.Join(l.dir, "member")
	m := &clusterServer{
		l: l, dir: dir, socket: filepath.Join(dir, "run", "pergola.sock"), ended: make(chan error, 1),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(l.binary, "server", "--listen", agentServer, //nolint:noctx // stopped by stop
		"--host", "server", "--state-dir", filepath.Join(dir, "run"), "--data-dir", filepath.Join(dir, "lib"),
		"--log-dir", filepath.Join(dir, "log"))
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+m.socket)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m.Process = cmd.Process
	go func() { m.ended <- cmd.Wait() }()
	for m.pergola(ctx, nil, "host", "ls") != nil {
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), m.stop())
		case err := <-m.ended:
			return nil, fmt.Errorf("start a server of a cluster: it ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return m, nil
}

func (m *clusterServer) stop() error {
	if err := m.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-m.ended
}

// pergola runs one command of the CLI; out, unless it is nil, gets what it prints, as JSON.
func (m *clusterServer) pergola(ctx context.Context, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, m.l.binary, args...)
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+m.socket, "NO_COLOR=1")
	var said, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complained
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pergola %v: %w: %s", args, err, bytes.TrimSpace(complained.Bytes()))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(said.Bytes(), out)
}

// crowd are agents without machines.
type crowd struct {
	dir   string // of their offline caches
	tasks sync.WaitGroup

	mu     sync.Mutex           // guards all below
	has    map[string]time.Time // by host: when it was told of its part of the network
	stored time.Time            // when that was stored
	news   chan struct{}        // has changed
}

func agentName(i int) string { return fmt.Sprintf("a%04d", i) }

// join makes all agents members, and waits until each has a lease.
func (c *crowd) join(ctx context.Context, s *clusterServer) error {
	var token struct {
		Text string `json:"text"`
	}
	if err := s.pergola(ctx, &token, "token", "create", "--json"); err != nil {
		return err
	}
	parsed, err := pki.ParseToken(token.Text)
	if err != nil {
		return err
	}
	group, joining := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range agentCount {
		group.Go(func() error { return c.joinOne(joining, ctx, parsed, i) })
	}
	return group.Wait()
}

// joinOne makes one agent a member; it lives as long as life.
func (c *crowd) joinOne(ctx, life context.Context, token pki.Token, i int) error {
	name, at := agentName(i), netip.AddrFrom4([4]byte{10, 91, byte(i >> 8), byte(i)})
	id, err := askToJoin(ctx, token, name, at)
	if err != nil {
		return fmt.Errorf("join as %s: %w", name, err)
	}
	by := session.NewClient(session.ClientConfig{
		TLS:     pki.ClientConfig(func() *pki.Identity { return id }),
		Servers: func() []string { return []string{agentServer + ":7470"} }, Handler: http.NotFoundHandler(),
	})
	c.tasks.Go(func() { by.Run(life) })
	dir, err := os.MkdirTemp(c.dir, "agent-")
	if err != nil {
		return err
	}
	agent := agents.NewClient(life, agents.ClientConfig{
		Host: name, Session: by, CacheDir: dir, Log: slog.New(slog.DiscardHandler),
	})
	_, err = agent.Register(ctx, machines.Host{
		Name: name, Machine: name, Address: at, API: at.String() + ":7470", Cores: 4, Memory: 8 << 30,
		Features: []string{machines.FeatureHTB, machines.FeatureNetem},
		Underlays: []machines.Underlay{
			{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(at, 8)}, MTU: 1500, XDP: "native"},
		},
	}, 10*time.Second)
	if err != nil {
		return err
	}
	changes, err := agent.Watch(life)
	c.tasks.Go(func() {
		defer func() { _ = os.RemoveAll(dir) }()
		for change := range changes {
			c.look(life, by, agent, name, change)
		}
	})
	return err
}

// look asks for the agent's part of a network that changed. It reads all of it, and does not put it together: agents do
// that on machines of their own.
func (c *crowd) look(ctx context.Context, by http.RoundTripper, agent *agents.Client, name string,
	change store.Change) {
	if change.What != store.SpecChanged {
		return
	}
	r, err := recordOf(ctx, by, change.Slice)
	if err != nil {
		return
	}
	if r.Deleting {
		untilTold(ctx, func() error { return agent.Release(ctx, name, change.Slice) })
		return
	}
	c.mu.Lock()
	if c.has[name].IsZero() {
		c.has[name], c.stored = time.Now(), r.Updated
	}
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
	st := slice.Status{Slice: change.Slice, Generation: r.Generation, Settled: true,
		Nodes: map[string]slice.NodeStatus{"n" + name: {Phase: slice.Running, Host: name}}}
	untilTold(ctx, func() error { return agent.PutStatus(ctx, name, st) })
}

// untilTold tells a server something, again and again while it does not answer.
func untilTold(ctx context.Context, tell func() error) {
	for {
		if err := tell(); err == nil || errors.Is(err, store.ErrNotFound) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// recordOf asks for an agent's part of a network, and gives its record.
func recordOf(ctx context.Context, by http.RoundTripper, name string) (store.Record, error) {
	var part struct {
		Record store.Record `json:"record"`
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+agents.Prefix+"slices/"+name,
		http.NoBody)
	if err != nil {
		return part.Record, err
	}
	resp, err := by.RoundTrip(r)
	if err != nil {
		return part.Record, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return part.Record, fmt.Errorf("it answers %s", resp.Status)
	}
	return part.Record, json.NewDecoder(resp.Body).Decode(&part)
}

// handOut applies a network with a node on each agent's host, and gives the seconds from when it is stored until all
// have their parts. Then it is removed.
func (c *crowd) handOut(ctx context.Context, s *clusterServer) (seconds float64, err error) {
	var text strings.Builder
	text.WriteString("name: crowd\naddressing: {ipv6: false}\nnodes:\n")
	for i := range agentCount {
		fmt.Fprintf(&text, "  n%s: {host: %[1]s, files: {/etc/motd: {content: \"node %[2]d\\n\"}}}\n",
			agentName(i), i)
	}
	text.WriteString("links:\n")
	for i := 1; i < agentCount; i++ {
		fmt.Fprintf(&text, "  - [n%s, n%s]\n", agentName(i-1), agentName(i))
	}
	file := filepath.Join(s.dir, "crowd.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return 0, err
	}
	c.mu.Lock()
	clear(c.has)
	c.mu.Unlock()
	if err := s.pergola(ctx, nil, "up", file); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.pergola(ctx, nil, "down", "crowd")) }()
	for {
		if last, n := c.last(); n == agentCount {
			return last.Sub(c.stored).Seconds(), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-c.news:
		}
	}
}

// last is when the last of so many agents was told.
func (c *crowd) last() (last time.Time, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.has {
		if at.After(last) {
			last = at
		}
	}
	return last, len(c.has)
}

// cpuSeconds is the processor time of a process so far (proc_pid_stat(5), utime and stime).
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const first, ticks = 3, 100 // of the fields behind the name; USER_HZ
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system float64
	if _, err := fmt.Sscan(fields[14-first], &user); err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(fields[15-first], &system); err != nil {
		return 0, err
	}
	return (user + system) / ticks, nil
}

// askToJoin makes a machine a member of the cluster that a token is from.
func askToJoin(ctx context.Context, token pki.Token, name string, at netip.Addr) (*pki.Identity, error) {
	id := new(pki.Identity)
	var err error
	if id.Key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	request, err := pki.Request(id.Key)
	if err != nil {
		return nil, err
	}
	asked, err := json.Marshal(api.JoinRequest{Token: token.Text(), Request: request, Role: pki.Agent, Name: name,
		Machine: name, API: at.String() + ":7470"})
	if err != nil {
		return nil, err
	}
	by := &http.Transport{TLSClientConfig: pki.JoinConfig(token)}
	defer by.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+agentServer+":7470/v1/join",
		bytes.NewReader(asked))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := by.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	var answer api.JoinAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if id.Certificate, err = pki.ParseCertificate([]byte(answer.Certificate)); err != nil {
		return nil, err
	}
	id.Authority, err = pki.ParseCertificate([]byte(answer.Authority))
	return id, err
}
