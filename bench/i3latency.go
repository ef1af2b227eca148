package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/examples"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Figure 12 of SPP: pings through a server of I3 of their own, beside two that have a load. Where packets are forwarded
// by packet programs, and where i3d does it, over settings of the scheduler.
const (
	i3PingGoal = 50  // us, on average
	i3PingFlat = 20  // us that the average may be more under the highest load than without
	i3PingCPU  = 0.3 // cores of each i3d
	i3Payload  = 400 // bytes, of the load
	i3Servers  = 3   // the first one has the pings
	i3PingSpan = time.Second
	i3Patience = 30 * time.Second // until servers answer, and forward
)

// i3Loads are in packets a second, of both servers that have a load.
var i3Loads = []float64{0, 10_000, 20_000, 40_000}

// i3Kind is by what packets are forwarded.
type i3Kind struct {
	name string
	fast bool
	cycleSetting
}

// i3Kinds lists them: the fast path first.
func i3Kinds() []i3Kind {
	all := []i3Kind{{name: "packet program", fast: true}}
	for _, s := range append([]cycleSetting{{"5 ms", 5 * time.Millisecond}}, cycleSettings...) {
		name := "i3d, no limit"
		if s.period > 0 {
			name = fmt.Sprintf("i3d, cpu %g, cpu_period %s", i3PingCPU, s.name)
		}
		all = append(all, i3Kind{name: name, cycleSetting: s})
	}
	return all
}

const i3Network = "i3latency"

// i3Server is the name of a server's node, and its address.
func i3Server(kind, server int) (string, netip.Addr) {
	return fmt.Sprintf("k%dn%d", kind, server), netip.AddrFrom4([4]byte{198, 51, 100, byte(10*(kind+1) + server)})
}

// i3LatencyTopology has a sender, a receiver, and all servers on one switch. Each server is a ring of its own, and all
// i3d are on core 0.
func i3LatencyTopology(binary string) topo {
	t := topo{name: i3Network}
	var b, links strings.Builder
	fmt.Fprintf(&b, "name: %s\nnodes:\n  sw: {kind: switch}\n  a: {kind: host}\n  b: {kind: host}\n", t.name)
	links.WriteString("links:\n  - {ends: [a, sw], addresses: {a: 198.51.100.1/24}, ipv6: false}\n  - " +
		"{ends: [b, sw], addresses: {b: 198.51.100.2/24}, ipv6: false}\n")
	for k, kind := range i3Kinds() {
		flag := ""
		if kind.fast {
			flag = ", --fastpath"
		}
		for s := range i3Servers {
			name, address := i3Server(k, s)
			fmt.Fprintf(&b, "  %s: {program: i3.c, binds: [\"%s:/run/i3/i3d:ro\"], cmd: "+
				"[taskset, -c, \"0\", /run/i3/i3d, --listen, \"%s\", --max-lifetime, 1h%s]%s}\n",
				name, binary, address, flag, kind.limit(i3PingCPU))
			fmt.Fprintf(&links, "  - {ends: [%s, sw], addresses: {%[1]s: %s/24}, ipv6: false}\n", name,
				address)
		}
	}
	t.yaml = b.String() + links.String()
	return t
}

// i3Key is of a series.
type i3Key struct {
	kind string
	load float64
}

// i3Window is one window.
type i3Window struct {
	took []float64 // us
	lost int
}

// i3Took is what was measured.
type i3Took struct {
	rounds.Counts
	took map[i3Key][]float64 // us, of all rounds
	mean map[i3Key][]float64 // by round
	lost map[i3Key]int
}

// i3Latency is figure 12.
func i3Latency(ctx context.Context, l *lab) (_ []row, err error) {
	t := &i3Took{Counts: rounds.Counts{Wanted: l.rounds}, took: map[i3Key][]float64{}, mean: map[i3Key][]float64{},
		lost: map[i3Key]int{}}
	stand, err := l.i3Up(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stand.undo.Run()) }()
	for range l.rounds {
		t.Rounds++
		for k, kind := range i3Kinds() {
			for _, load := range i3Loads {
				w, ok, err := rounds.Undisturbed(ctx, &t.Counts, func() (i3Window, error) {
					return stand.run(k, load)
				})
				if err != nil {
					return t.rows(), fmt.Errorf("ping by %s at %.0f packets a second: %w",
						kind.name, load, err)
				}
				if ok {
					key := i3Key{kind.name, load}
					mean, _ := chart.Spread(w.took)
					t.took[key], t.mean[key] = append(t.took[key], w.took...), append(t.mean[key],
						mean)
					t.lost[key] += w.lost
				}
			}
		}
	}
	l.section = t.section()
	return t.rows(), nil
}

// i3Stand is the network.
type i3Stand struct {
	ends  [2]*os.File // sender and receiver
	pings []*traffic.OneWay
	loads [][]*traffic.Flood // of each kind, one for each server with a load
	undo  undo.Steps
}

func (l *lab) i3Up(ctx context.Context) (_ *i3Stand, err error) {
	file, err := l.file(i3LatencyTopology(filepath.Join(filepath.Dir(l.binary), "i3d")))
	if err != nil {
		return nil, err
	}
	if _, err := examples.WriteProgram(l.dir, "i3.c"); err != nil {
		return nil, err
	}
	if err := errors.Join(l.start(ctx), l.pergola(ctx, "up", "--wait", file)); err != nil {
		return nil, err
	}
	s := &i3Stand{}
	s.undo.Push(func() error { return l.pergola(context.WithoutCancel(ctx), "down", i3Network) })
	defer s.undo.OnError(&err)
	nodes, err := l.nodes(ctx, i3Network)
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"a", "b"} {
		if s.ends[i], err = netns.Open(netns.Path(nodes[name].PID)); err != nil {
			return nil, err
		}
		s.undo.Push(s.ends[i].Close)
	}
	if err := s.insert(ctx); err != nil {
		return nil, err
	}
	return s, s.open(ctx, l)
}

// i3PingPort is the receiver's, of the pings of a kind.
func i3PingPort(kind int) uint16 { return uint16(traffic.EchoPort + kind) }

var i3PingID = ident.FromName("latency")

// insert gives all servers a trigger of the receiver: its port says whether that is for pings or for the load.
func (s *i3Stand) insert(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, i3Patience)
	defer cancel()
	for k := range i3Kinds() {
		for server := range i3Servers {
			name, address := i3Server(k, server)
			port := uint16(traffic.Port)
			if server == 0 {
				port = i3PingPort(k)
			}
			var c *client.Client
			err := netns.In(s.ends[1], func() (err error) {
				c, err = client.New(client.Options{
					Gateways: []netip.AddrPort{netip.AddrPortFrom(address, wire.Port)},
					Local:    netip.AddrPortFrom(netip.MustParseAddr("198.51.100.2"), port),
					Lifetime: time.Hour,
				})
				return err
			})
			if err != nil {
				return err
			}
			err = c.Insert(ctx, client.Trigger{ID: i3PingID, Handle: client.NewHandle()})
			if err := errors.Join(err, c.Close()); err != nil {
				return fmt.Errorf("insert a trigger at %s: %w", name, err)
			}
		}
	}
	return nil
}

// open makes the sockets.
func (s *i3Stand) open(ctx context.Context, l *lab) error {
	var device int
	err := netns.In(s.ends[1], func() error {
		d, err := net.InterfaceByName("eth1")
		if err == nil {
			device = d.Index
		}
		return err
	})
	if err != nil {
		return err
	}
	sink, err := traffic.NewHostSink(s.ends[1], device) // of the load
	if err != nil {
		return err
	}
	s.undo.Push(sink.Close)
	packet := func(payload int) []byte {
		return wire.New(wire.Data, []ident.ID{i3PingID}, make([]byte, payload))
	}
	for k := range i3Kinds() {
		var floods []*traffic.Flood
		for server := range i3Servers {
			_, address := i3Server(k, server)
			to := netip.AddrPortFrom(address, wire.Port)
			if server > 0 {
				f, err := traffic.NewFloodOf(s.ends[0], to, packet(i3Payload))
				if err != nil {
					return err
				}
				s.undo.Push(f.Close)
				floods = append(floods, f)
				continue
			}
			p, err := traffic.NewOneWay(s.ends[0], s.ends[1], to, int(i3PingPort(k)), packet(8))
			if err != nil {
				return err
			}
			s.undo.Push(p.Close)
			s.pings = append(s.pings, p)
		}
		s.loads = append(s.loads, floods)
	}
	return s.settle(ctx, l)
}

// settle pings until the packet programs deliver: i3d learns Ethernet addresses first.
func (s *i3Stand) settle(ctx context.Context, l *lab) error {
	ctx, cancel := context.WithTimeout(ctx, i3Patience)
	defer cancel()
	for {
		for _, p := range s.pings {
			if _, _, err := p.Once(); err != nil {
				return err
			}
		}
		for k := range s.loads {
			for _, f := range s.loads[k] {
				if _, err := f.Pace(time.Millisecond, 1000); err != nil {
					return err
				}
			}
		}
		delivered, err := l.i3Delivered(ctx)
		if err != nil {
			return err
		}
		ready := true
		for server := range i3Servers {
			name, _ := i3Server(0, server)
			ready = ready && delivered[name] > 0
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("packet programs of I3 deliver nothing")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// i3Delivered is how many packets packet programs delivered, by node.
func (l *lab) i3Delivered(ctx context.Context) (map[string]uint64, error) {
	out, err := l.output(ctx, "program", "counters", "-s", i3Network, "--json")
	if err != nil {
		return nil, err
	}
	var all struct {
		Programs []struct {
			Node     string
			Counters map[string]uint64
		}
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, err
	}
	delivered := map[string]uint64{}
	for _, p := range all.Programs {
		delivered[p.Node] = p.Counters["delivered"]
	}
	return delivered, nil
}

// run pings through the first server of a kind, while the others have a load. Both come from core 1.
func (s *i3Stand) run(kind int, load float64) (w i3Window, err error) {
	const core, gap = 1, time.Millisecond
	ended := make(chan error, 1)
	go func() {
		ended <- traffic.OnCPU(core, func() error {
			return traffic.PaceAll(s.loads[kind], i3PingSpan+i3PingSpan/4, load)
		})
	}()
	time.Sleep(i3PingSpan / 4)
	err = traffic.OnCPU(core, func() (err error) {
		usual, err := traffic.First()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, usual()) }()
		for began := time.Now(); time.Since(began) < i3PingSpan-i3PingSpan/4; time.Sleep(gap) {
			took, arrived, err := s.pings[kind].Once()
			if err != nil {
				return err
			}
			if arrived {
				w.took = append(w.took, float64(took.Nanoseconds())/1e3)
			} else {
				w.lost++
			}
		}
		return nil
	})
	return w, errors.Join(err, <-ended)
}

func (t *i3Took) rows() (rows []row) {
	for _, kind := range i3Kinds() {
		none, most := i3Key{kind.name, i3Loads[0]}, i3Key{kind.name, i3Loads[len(i3Loads)-1]}
		r := row{What: fmt.Sprintf("pings through a server of I3, %s, while others have %.0f packets "+
			"a second: mean",
			kind.name, most.load), Unit: "us", Values: t.mean[most], Against: "no load",
			Other: t.mean[none]}
		if kind.fast {
			r.Most, r.MostMore = i3PingGoal, i3PingFlat
		}
		rows = append(rows, r)
	}
	return rows
}

func (t *i3Took) section() *chart.Section {
	s := &chart.Section{
		Title: "Pings through a server of I3 of their own (figure 12 of SPP)",
		Intro: fmt.Sprintf("%d rounds. Two other servers have a load: packets with %d bytes of "+
			"payload. From the sender to the receiver, one way.", t.Rounds, i3Payload),
		Notes: append([]string{
			"**Packet program**: examples/programs/i3.c, which `i3d --fastpath` programs. " +
				"**i3d**: without `--fastpath`, so all packets are punted to it. A sender, a " +
				"receiver and all servers are on one switch; each server is a ring of its own.",
			"All i3d are on one core, load and pings come from the other one. The sender of " +
				"pings is their receiver, too, so the way takes in one wake-up of it; it has its " +
				"core before the load. A ping that did not come within 200 ms is lost.",
		}, t.Caveats()...),
	}
	table := chart.Table{Columns: []string{"forwarded by", "load, packets/s", "pings", "lost", "mean, us",
		"median",
		"99 %", "longest"}}
	c := chart.Chart{File: "i3-latency.svg", Title: "Pings through a server of I3 of their own",
		X: "packets a second, of other servers", Y: "mean, us", LogY: true}
	for _, kind := range i3Kinds() {
		curve := chart.Curve{Name: kind.name}
		for _, load := range i3Loads {
			k := i3Key{kind.name, load}
			took := t.took[k]
			mean, _ := chart.Spread(took)
			table.Rows = append(table.Rows, []string{kind.name, fmt.Sprint(load), fmt.Sprint(len(took)),
				fmt.Sprint(t.lost[k]), chart.Number(mean), chart.Number(chart.Quantile(took, 0.5)),
				chart.Number(chart.Quantile(took, 0.99)), chart.Number(chart.Quantile(took, 1))})
			curve.Add(load, mean)
		}
		c.Curves = append(c.Curves, curve)
	}
	s.Tables, s.Charts = []chart.Table{table}, []chart.Chart{c}
	return s
}
