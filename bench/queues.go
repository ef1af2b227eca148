package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/pergola-net/pergola/bench/queues"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/kernel/netns"
)

const (
	sppInputs  = 5
	sppPort    = 100e6 // bit/s of each output
	sppEvery   = 200 * time.Millisecond
	sppOffset  = 2 * time.Second // of figure 7: until the next input is switched on, or off
	sppPhase   = 3 * time.Second // of figure 8
	sppNetwork = "spp"
)

var sppShares = []int{30, 25, 20, 15, 10}

// sppQueues is figure 7 of SPP: five inputs, switched on and off one after the other, send to one output, each to a
// queue of its own.
func sppQueues(ctx context.Context, l *lab) ([]row, error) {
	const each = 0.6 * sppPort
	plan := func(at time.Duration) (rates []float64) {
		for i := range sppInputs {
			on := time.Duration(i) * sppOffset
			off := (2*sppInputs + time.Duration(i)) * sppOffset / 2 // all of them send for a while
			rates = append(rates, 0)
			if at >= on && at < on+off {
				rates[i] = each
			}
		}
		return rates
	}
	flows := make([]sppFlow, sppInputs)
	for i := range flows {
		flows[i] = sppFlow{from: i, to: sppInputs}
	}
	course := sppCourse{
		flows: flows, length: (2*sppInputs + 1) * sppOffset, plan: plan,
		entry: func(q api.QueueTraffic) int { return numberOf(q.Class) - 1 },
		of:    fmt.Sprintf("r:eth%d", sppInputs+1),
	}
	r := row{
		What: "share of a queue, furthest from what it should be while all five are backlogged", Unit: "%",
		Most: 2,
	}
	judge := func(run queues.Run) (float64, time.Duration) { return run.ShareError(sppShares) }
	return l.sppRounds(ctx, course, r, judge)
}

// sppOverload is figure 8 of SPP: five inputs send to five outputs. In each phase one output gets twice what it can
// send, three what they can, and one nothing.
func sppOverload(ctx context.Context, l *lab) ([]row, error) {
	var flows []sppFlow
	for from := range sppInputs {
		for to := range sppInputs {
			flows = append(flows, sppFlow{from: from, to: to})
		}
	}
	plan := func(at time.Duration) (rates []float64) {
		for _, f := range flows {
			load := []float64{2, 1, 1, 1, 0}[(f.to-int(at/sppPhase)+2*sppInputs)%sppInputs]
			if at >= sppInputs*sppPhase {
				load = 0
			}
			rates = append(rates, load*sppPort/sppInputs)
		}
		return rates
	}
	course := sppCourse{
		flows: flows, length: sppInputs*sppPhase + sppPhase, plan: plan,
		entry: func(q api.QueueTraffic) int { return numberOf(strings.TrimPrefix(q.From, "r:eth")) - 1 },
	}
	r := row{What: "rate of a port, furthest from the port's own while it is backlogged", Unit: "%", Most: 2}
	judge := func(run queues.Run) (float64, time.Duration) { return run.RateError(sppPort) }
	return l.sppRounds(ctx, course, r, judge)
}

// sppFlow is from a node to a node: its interface of the router is the next number.
type sppFlow struct{ from, to int }

// sppCourse is what is sent in a round, and what is read.
type sppCourse struct {
	flows  []sppFlow
	length time.Duration
	plan   func(at time.Duration) []float64 // bits a second of each flow
	entry  func(api.QueueTraffic) int       // of a sample, from 0
	of     string                           // only queues of this end; empty: all
}

func numberOf(text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		return 0
	}
	return n
}

func (l *lab) sppRounds(ctx context.Context, c sppCourse, r row,
	judge func(queues.Run) (float64, time.Duration)) (rows []row, err error) {
	nodes, err := l.sppUp(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.sppDown(ctx)) }()
	for range l.rounds {
		run, err := l.sppRound(ctx, c, nodes)
		if err != nil {
			return []row{r}, err
		}
		l.queues = &run
		if worst, span := judge(run); span > 0 {
			r.Values = append(r.Values, 100*worst)
		}
	}
	if !r.any() {
		return nil, errors.New("the hypervisor took time away in every window, or no queue was backlogged")
	}
	return []row{r}, nil
}

// sppUp brings the network up, and gives the processes of the nodes.
func (l *lab) sppUp(ctx context.Context) (pids []int, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nnodes:\n  r: {program: shares.c, reserve: {buffer: 256MiB}}\n", sppNetwork)
	for i := range sppInputs + 1 {
		fmt.Fprintf(&b, "  n%d: {kind: host}\n", i+1)
	}
	b.WriteString("links:\n")
	for i := range sppInputs + 1 {
		fmt.Fprintf(&b, "  - {ends: [n%[1]d, r], addresses: {n%[1]d: 192.0.2.%[1]d/24}, ipv6: false, "+
			"from: {r: {rate: %.0[2]f, queues: {", i+1, sppPort)
		for q, share := range sppShares {
			if i < sppInputs {
				share = 1
			}
			fmt.Fprintf(&b, "%d: {share: %d, length: 8MiB}, ", q+1, share)
		}
		b.WriteString("}}}}\n")
	}
	file, err := l.file(topo{name: sppNetwork, yaml: b.String()})
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "shares.c"), queues.Program, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.start(ctx), l.pergola(ctx, "up", "--wait", file)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.sppDown(ctx))
		}
	}()
	status, err := l.nodes(ctx, sppNetwork)
	if err != nil {
		return nil, err
	}
	for i := range sppInputs + 1 {
		name := fmt.Sprintf("n%d", i+1)
		pids = append(pids, status[name].PID)
		// What arrives for nobody's address is counted where it left, and then dropped.
		if err := l.pergola(ctx, "exec", "-s", sppNetwork, name, "--", "ip", "neighbour", "replace",
			"192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "eth1"); err != nil {
			return nil, err
		}
	}
	return pids, nil
}

// sppDown takes the network down, also where the measurement was interrupted.
func (l *lab) sppDown(ctx context.Context) error {
	return l.pergola(context.WithoutCancel(ctx), "down", sppNetwork)
}

// sppRound sends, and reads the counters as users do.
func (l *lab) sppRound(ctx context.Context, c sppCourse, pids []int) (run queues.Run, err error) {
	flows, err := c.open(pids)
	defer func() {
		for _, f := range flows {
			err = errors.Join(err, f.Close())
		}
	}()
	if err != nil {
		return run, err
	}
	stop, sent := make(chan struct{}), make(chan error, 1)
	go func() { sent <- queues.Send(flows, stop) }()
	defer func() {
		close(stop)
		err = errors.Join(err, <-sent)
	}()
	for i := range sppInputs {
		run.Names = append(run.Names, fmt.Sprint(i+1))
	}
	looks := int(c.length / sppEvery)
	cmd := exec.CommandContext(ctx, l.binary, "link", "stats", "-s", sppNetwork, "--json", "--watch", "--every",
		sppEvery.String(), "-n", fmt.Sprint(looks))
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+l.socket())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return run, err
	}
	if err := cmd.Start(); err != nil {
		return run, err
	}
	return run, errors.Join(c.follow(out, flows, &run), cmd.Wait())
}

func (c sppCourse) open(pids []int) (all []*queues.Flow, err error) {
	for _, f := range c.flows {
		ns, err := netns.Open(netns.Path(pids[f.from]))
		if err != nil {
			return all, err
		}
		flow, err := queues.NewFlow(ns, fmt.Sprintf("192.0.2.9:%d", 5001+f.to))
		if err := errors.Join(err, ns.Close()); err != nil {
			return all, err
		}
		all = append(all, flow)
	}
	return all, nil
}

// follow takes a sample for each look, and sets the rates of the flows for the time until the next one.
func (c sppCourse) follow(looks io.Reader, flows []*queues.Flow, run *queues.Run) error {
	stolen, begun := rounds.Stolen(), time.Now()
	for in := json.NewDecoder(looks); ; {
		for i, bits := range c.plan(time.Since(begun)) {
			flows[i].Set(bits)
		}
		var all api.SliceQueues
		if err := in.Decode(&all); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read counters: %w", err)
		}
		s := queues.Sample{At: time.Since(begun).Seconds(), In: make([]uint64, sppInputs),
			Out: make([]uint64, sppInputs), Backlog: make([]uint64, sppInputs)}
		var err error
		if s.Stolen, err = stolen(); err != nil {
			return err
		}
		for i, f := range c.flows {
			into := f.from
			if c.of == "" { // by output
				into = f.to
			}
			s.In[into] += flows[i].Sent()
		}
		s.Count(all.Queues, func(q api.QueueTraffic) int {
			i := c.entry(q)
			if i >= sppInputs || !strings.HasPrefix(q.From, "r:") || c.of != "" && c.of != q.From {
				return -1
			}
			return i
		})
		run.Samples = append(run.Samples, s)
	}
}

// queueSection is what the report says beside the figures.
func (m *measurement) queueSection(pictures []picture) string {
	var b strings.Builder
	titles := map[string]string{
		"spp-queues":   "Five queues of a packet program (figure 7 of SPP)",
		"spp-overload": "Five ports in turn overloaded (figure 8 of SPP)",
	}
	fmt.Fprintf(&b, "\n## %s\n\n", titles[m.Name])
	fmt.Fprintf(&b, "Live counters of `pergola link stats --every %v`, the last round. Frames of 1,442 bytes, "+
		"ports of %.0f Mbit/s; in and out are added up, queue over queue.\n", sppEvery, sppPort/1e6)
	show(&b, pictures)
	return b.String()
}

// drawQueues draws rates in and out, added up queue over queue as in the paper, and what waits.
func drawQueues(name string, r *queues.Run, dir string) ([]picture, error) {
	rates := picture{name + "-rates.svg", "Rates: in (first five) and out, added up"}
	lengths := picture{name + "-lengths.svg", "Length of queues"}
	p := newPlot(rates.title, "s", "Mbit/s")
	for k, counters := range []func(queues.Sample) []uint64{queues.In, queues.Out} {
		sums := make([]float64, len(r.Samples))
		for q, queue := range r.Names {
			var points plotter.XYs
			for i := 1; i < len(r.Samples); i++ {
				sums[i] += r.Rate(counters, q, i) / 1e6
				points = append(points, plotter.XY{X: r.Samples[i].At, Y: sums[i]})
			}
			if err := addLine(p, k*len(r.Names)+q, []string{"in ", "out "}[k]+queue, points); err != nil {
				return nil, err
			}
		}
	}
	if err := save(p, dir, rates.file); err != nil {
		return nil, err
	}
	p = newPlot(lengths.title, "s", "KiB")
	for q, queue := range r.Names {
		var points plotter.XYs
		for _, s := range r.Samples {
			points = append(points, plotter.XY{X: s.At, Y: float64(s.Backlog[q]) / 1024})
		}
		if err := addLine(p, q, "queue "+queue, points); err != nil {
			return []picture{rates}, err
		}
	}
	return []picture{rates, lengths}, save(p, dir, lengths.file)
}
