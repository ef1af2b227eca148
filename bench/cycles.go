package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/examples"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Figure 5 of SPP: burners in slivers that share a core, over settings of the scheduler, and pings through the packet
// programs of the same nodes.
const (
	cycleNodes = 8
	cycleCPU   = 0.1
	cycleSpan  = 2 * time.Second
	cyclePing  = 200 // us, of 99 % of the pings
)

// cycleSetting is what a sliver may have of the core.
type cycleSetting struct {
	name   string
	period time.Duration // 0: no limit
}

// cycleSettings lists them. With a tenth of a core, the kernel can give a turn, which has a millisecond, in 10 ms.
var cycleSettings = []cycleSetting{
	{"10 ms", 10 * time.Millisecond},
	{"20 ms", 20 * time.Millisecond},
	{"50 ms", 50 * time.Millisecond},
	{"100 ms", 100 * time.Millisecond},
	{"no limit", 0},
}

// limit is how a topology writes it.
func (s cycleSetting) limit(cpu float64) string {
	if s.period == 0 {
		return ""
	}
	return fmt.Sprintf(", cpu: %g, cpu_period: %dms", cpu, s.period.Milliseconds())
}

// cyclesOf is the network for a setting: two hosts, and between them the nodes with the burners.
func cyclesOf(number int, s cycleSetting) topo {
	t := topo{name: fmt.Sprintf("cycles%d", number)}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nnodes:\n  a: {kind: host}\n  b: {kind: host}\n", t.name)
	for i := range cycleNodes {
		fmt.Fprintf(&b, "  p%d: {program: wire.c, files: {/usr/local/bin/burner: {source: burner, mode: "+
			"\"0755\"}}%s}\n",
			i+1, s.limit(cycleCPU))
	}
	b.WriteString("links:\n")
	for _, end := range []string{"a", "b"} {
		for i := range cycleNodes {
			fmt.Fprintf(&b, "  - {ends: [%s, p%d], addresses: {%[1]s: %[3]s/24}, ipv6: false}\n", end, i+1,
				cycleAddress(end, i))
		}
	}
	t.yaml = b.String()
	return t
}

func cycleAddress(end string, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(i + 1), 1 + end[0] - 'a'})
}

// cycleTook is what was measured, by setting.
type cycleTook struct {
	rounds.Counts
	cycles, pings map[string][]float64 // ms, and us, of all rounds
	lost          map[string]int       // pings
	middle, most  map[string][]float64 // ms, by round: the median of cycles, and the longest of 99 %
	pinged        map[string][]float64 // us, by round: 99 % of pings
}

// cycleTimes is figure 5.
func cycleTimes(ctx context.Context, l *lab) (_ []row, err error) {
	t := &cycleTook{Counts: rounds.Counts{Wanted: l.rounds}, cycles: map[string][]float64{},
		pings: map[string][]float64{}, lost: map[string]int{}, middle: map[string][]float64{},
		most: map[string][]float64{}, pinged: map[string][]float64{}}
	if _, err := peers.Build(ctx, l.dir, "burner", "-static"); err != nil {
		return nil, err
	}
	if _, err := examples.WriteProgram(l.dir, "wire.c"); err != nil {
		return nil, err
	}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	stands := map[string]*cycleStand{}
	for i, setting := range cycleSettings {
		s, err := l.cyclesUp(ctx, cyclesOf(i+1, setting))
		if err != nil {
			return nil, err
		}
		steps.Push(s.undo.Run)
		stands[setting.name] = s
	}
	for range l.rounds {
		t.Rounds++
		for _, setting := range cycleSettings {
			w, ok, err := rounds.Undisturbed(ctx, &t.Counts, func() (cycleWindow, error) {
				return stands[setting.name].run(ctx, l)
			})
			if err != nil {
				return t.rows(), fmt.Errorf("burn with %s: %w", setting.name, err)
			}
			if ok {
				t.add(setting.name, w)
			}
		}
	}
	l.section = t.section()
	return t.rows(), nil
}

// cycleStand is the network of one setting.
type cycleStand struct {
	name  string
	pings []*traffic.Pings
	undo  undo.Steps
}

func (l *lab) cyclesUp(ctx context.Context, t topo) (_ *cycleStand, err error) {
	file, err := l.file(t)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.start(ctx), l.pergola(ctx, "up", "--wait", file)); err != nil {
		return nil, err
	}
	s := &cycleStand{name: t.name}
	s.undo.Push(func() error { return l.pergola(context.WithoutCancel(ctx), "down", t.name) })
	defer s.undo.OnError(&err)
	nodes, err := l.nodes(ctx, t.name)
	if err != nil {
		return nil, err
	}
	var ends [2]*os.File
	for i, name := range []string{"a", "b"} {
		if ends[i], err = netns.Open(netns.Path(nodes[name].PID)); err != nil {
			return nil, err
		}
		s.undo.Push(ends[i].Close)
	}
	for i := range cycleNodes {
		var device int
		err := netns.In(ends[1], func() error {
			d, err := net.InterfaceByName(fmt.Sprintf("eth%d", i+1))
			if err == nil {
				device = d.Index
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		echo, err := traffic.NewHostEchoSink(ends[1], device)
		if err != nil {
			return nil, err
		}
		s.undo.Push(echo.Close)
		p, err := traffic.NewPings(ends[0], cycleAddress("b", i), 56)
		if err != nil {
			return nil, err
		}
		s.undo.Push(p.Close)
		s.pings = append(s.pings, p)
		if _, _, err := p.Once(); err != nil { // which asks for the neighbour
			return nil, err
		}
	}
	return s, nil
}

// cycleWindow is one window of a setting.
type cycleWindow struct {
	cycles, pings []float64
	lost          int
}

// run lets all nodes burn on core 0, and pings through them from there meanwhile.
func (s *cycleStand) run(ctx context.Context, l *lab) (w cycleWindow, err error) {
	const core, settled = 0, 300 * time.Millisecond
	var group sync.WaitGroup
	gaps, errs := make([][]float64, cycleNodes), make([]error, cycleNodes)
	for i := range cycleNodes {
		group.Go(func() {
			out, err := l.output(ctx, "exec", "-s", s.name, fmt.Sprintf("p%d", i+1), "--",
				"/usr/local/bin/burner",
				strconv.Itoa(core), strconv.FormatInt((settled+cycleSpan).Milliseconds(), 10))
			if err == nil {
				gaps[i], err = cyclesIn(out)
			}
			errs[i] = err
		})
	}
	time.Sleep(settled)
	err = traffic.OnCPU(core, func() error { return s.ping(&w) })
	group.Wait()
	for _, g := range gaps {
		w.cycles = append(w.cycles, g...)
	}
	if err = errors.Join(append(errs, err)...); err == nil && len(w.cycles) == 0 {
		err = errors.New("no burner lost the core")
	}
	return w, err
}

// ping pings in turn, before the burners: a process that waits for its core would be taken for a slow network.
func (s *cycleStand) ping(w *cycleWindow) (err error) {
	const gap = 5 * time.Millisecond
	usual, err := traffic.First()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, usual()) }()
	for i, began := 0, time.Now(); time.Since(began) < cycleSpan*3/4; i++ {
		took, answered, err := s.pings[i%len(s.pings)].Once()
		if err != nil {
			return err
		}
		if answered {
			w.pings = append(w.pings, float64(took.Nanoseconds())/1e3)
		} else {
			w.lost++
		}
		time.Sleep(gap)
	}
	if len(w.pings) == 0 {
		return errors.New("no ping was answered")
	}
	return nil
}

// cyclesIn reads what a burner printed: for how many ns each time it had not the core. Of n burners that take turns,
// one waits for n - 1 others, so a cycle is n / (n - 1) of that, as SPP has it; milliseconds.
func cyclesIn(out []byte) (all []float64, err error) {
	for _, word := range bytes.Fields(out) {
		ns, err := strconv.ParseFloat(string(word), 64)
		if err != nil {
			return nil, fmt.Errorf("read what a burner printed: %w", err)
		}
		all = append(all, ns/1e6*cycleNodes/(cycleNodes-1))
	}
	return all, nil
}

func (t *cycleTook) add(name string, w cycleWindow) {
	t.cycles[name], t.pings[name] = append(t.cycles[name], w.cycles...), append(t.pings[name], w.pings...)
	t.lost[name] += w.lost
	t.middle[name] = append(t.middle[name], chart.Quantile(w.cycles, 0.5))
	t.most[name] = append(t.most[name], chart.Quantile(w.cycles, 0.99))
	t.pinged[name] = append(t.pinged[name], chart.Quantile(w.pings, 0.99))
}

func (t *cycleTook) rows() (rows []row) {
	for _, s := range cycleSettings {
		what := fmt.Sprintf("%d burners on a core, %s", cycleNodes, s.title())
		rows = append(rows,
			row{What: what + ": cycle, median", Unit: "ms", Values: t.middle[s.name]},
			row{What: what + ": cycle, 99 %", Unit: "ms", Values: t.most[s.name]},
			row{What: what + ": pings through the packet programs of their nodes, 99 %", Unit: "us",
				Values: t.pinged[s.name], Most: cyclePing})
	}
	return rows
}

func (s cycleSetting) title() string {
	if s.period == 0 {
		return s.name
	}
	return fmt.Sprintf("cpu %g, cpu_period %s", cycleCPU, s.name)
}

func (t *cycleTook) section() *chart.Section {
	s := &chart.Section{
		Title: "Cycle times of burners (figure 5 of SPP)",
		Intro: fmt.Sprintf("%d rounds of %v each. In %d slivers, beside packet programs, processes compute "+
			"on one core, and note when they did not have it. From a host, pings go through the nodes' "+
			"packet programs, on the same core.", t.Rounds, cycleSpan, cycleNodes),
		Notes: append([]string{
			fmt.Sprintf("A cycle is the time in which all burners have a turn: %d/%d of the time for "+
				"which one did not have the core, as the paper has it. Less than 0.1 ms does not "+
				"count.", cycleNodes,
				cycleNodes-1),
			"The process that pings (UDP, 56 bytes of data) has the core before the burners; a program " +
				"at the other host's interface sends pings back.",
		}, t.Caveats()...),
	}
	table := chart.Table{Columns: []string{"cpu_period", "cycles", "median, ms", "90 %", "99 %", "longest",
		"pings",
		"lost", "median, us", "99 %", "longest"}}
	cycles := chart.Chart{File: "cycle-times.svg", Title: "Cycle times of eight burners", X: "ms",
		Y: "% of cycles, at most so long", LogX: true, Steps: true}
	pings := chart.Chart{File: "cycle-pings.svg", Title: "Pings through the same nodes' packet programs", X: "us",
		Y: "% of pings, at most so long", LogX: true, Steps: true}
	for _, setting := range cycleSettings {
		took, pinged := t.cycles[setting.name], t.pings[setting.name]
		cells := []string{setting.name, strconv.Itoa(len(took))}
		for _, part := range []float64{0.5, 0.9, 0.99, 1} {
			cells = append(cells, chart.Number(chart.Quantile(took, part)))
		}
		cells = append(cells, strconv.Itoa(len(pinged)), strconv.Itoa(t.lost[setting.name]))
		for _, part := range []float64{0.5, 0.99, 1} {
			cells = append(cells, chart.Number(chart.Quantile(pinged, part)))
		}
		table.Rows = append(table.Rows, cells)
		cycles.Curves = append(cycles.Curves, chart.Distribution(setting.title(), took))
		pings.Curves = append(pings.Curves, chart.Distribution(setting.title(), pinged))
	}
	s.Tables, s.Charts = []chart.Table{table}, []chart.Chart{cycles, pings}
	return s
}
