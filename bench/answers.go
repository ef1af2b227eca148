package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/answers"
	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/sdk/message"
)

// What answers while data floods the host, and within which time, at the latest.
const (
	answerGoal  = 500 // ms
	answerTimes = 200
	answerPause = 5 * time.Millisecond // a slice's requests have a twentieth of a core
	leaseSpan   = 30 * time.Second
	fenceAfter  = 8 // s without a renewal: a host ends nodes that may start elsewhere
	leaseHosts  = 3
)

// Floods, by the last byte of the address to which datagrams go.
var answerFloods = []answerFlood{
	{"none", 0},
	{"on the fast path", 2},
	{"on a sliver's socket", 9},
}

type answerFlood struct {
	name string
	to   byte // 0: nothing is sent
}

// What is asked.
var answerKinds = []string{"GET of slices by the API", "hello or counters by a sliver's socket"}

// answerTook is the milliseconds that answers took, by kind and flood, and what the flood was.
type answerTook struct {
	rounds.Counts
	took   map[[2]string][]float64 // of all rounds
	worst  map[[2]string][]float64 // by round
	rate   map[string][]float64    // frames a second that were offered, by flood
	leases map[string][]float64    // s without a renewal, by flood and round
	// ms from one renewal of a lease to the next, by flood, of all rounds
	renewals map[string][]float64
}

const answersTopology = `name: answers
nodes:
  a: {kind: host}
  b: {kind: host}
  w: {program: sorter.c, slowpath: socket}
links:
  - {ends: [a, w], addresses: {a: 192.0.2.1/24}, ipv6: false}
  - {ends: [w, b], addresses: {b: 192.0.2.2/24}, ipv6: false}
`

// floodAnswers asks a host that is flooded with data.
func floodAnswers(ctx context.Context, l *lab) (_ []row, err error) {
	t := &answerTook{Counts: rounds.Counts{Wanted: l.rounds}, took: map[[2]string][]float64{},
		worst: map[[2]string][]float64{}, rate: map[string][]float64{}, leases: map[string][]float64{},
		renewals: map[string][]float64{}}
	stand, err := l.answersUp(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stand.undo.Run()) }()
	for range l.rounds {
		t.Rounds++
		for _, f := range answerFloods {
			if err := stand.ask(ctx, f, t); err != nil {
				return t.rows(), fmt.Errorf("ask while there is a flood (%s): %w", f.name, err)
			}
		}
	}
	leases, err := l.leases(ctx)
	if err != nil {
		return t.rows(), err
	}
	for range l.rounds {
		for _, f := range answerFloods[1:] {
			if err := stand.follow(ctx, f, leases, leaseSpan/time.Duration(len(answerFloods)-1),
				t); err != nil {
				return t.rows(), err
			}
		}
	}
	l.section = t.section()
	return t.rows(), l.removeCluster(ctx)
}

// answersStand is a network with a flood.
type answersStand struct {
	client *client.Client
	socket *answers.Socket
	reader *answers.Reader
	ns     *os.File
	flow   traffic.Flow
	undo   undo.Steps
}

func (l *lab) answersUp(ctx context.Context) (_ *answersStand, err error) {
	file, err := l.file(topo{name: "answers", yaml: answersTopology})
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "sorter.c"), answers.Program, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.start(ctx), l.pergola(ctx, "up", "--wait", file)); err != nil {
		return nil, err
	}
	s := &answersStand{}
	s.undo.Push(func() error { return l.pergola(context.WithoutCancel(ctx), "down", "answers") })
	defer s.undo.OnError(&err)
	nodes, err := l.nodes(ctx, "answers")
	if err != nil {
		return nil, err
	}
	if s.client, err = client.Dial(ctx, l.socket()); err != nil {
		return nil, err
	}
	s.undo.Push(s.client.Close)
	if s.socket, err = answers.Dial(nodes["w"].PID); err != nil {
		return nil, err
	}
	s.undo.Push(s.socket.Close)
	if s.reader, err = s.socket.Read(); err != nil {
		return nil, err
	}
	s.undo.Push(s.reader.Close)
	if s.ns, err = netns.Open(netns.Path(nodes["a"].PID)); err != nil {
		return nil, err
	}
	s.undo.Push(s.ns.Close)
	return s, s.card(ctx, filepath.Join(l.dir, "run", "netns", "substrate"))
}

// card lets the host's link be as that of a network card is: the generator makes its frames on one core, and they enter
// the data path by softirq on the other.
func (s *answersStand) card(ctx context.Context, substrate string) error {
	var port int
	err := netns.In(s.ns, func() error {
		device, err := net.InterfaceByName("eth1")
		if err != nil {
			return err
		}
		s.flow = traffic.Flow{Device: device.Index, From: [6]byte(device.HardwareAddr),
			To: [6]byte{2, 0, 0, 0, 0, 9}, Source: netip.MustParseAddr("192.0.2.1"),
			Size: traffic.FrameSize}
		port, err = peerOf("eth1")
		return err
	})
	if err != nil {
		return fmt.Errorf("find the host's link: %w", err)
	}
	ns, err := netns.Open(substrate)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	var name string
	err = netns.In(ns, func() error {
		device, err := net.InterfaceByIndex(port)
		if err == nil {
			name = device.Name
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("find the host's port: %w", err)
	}
	if err := vnet.SetOffload(ns, name, vnet.GRO, true); err != nil { // else it takes no frames of a generator
		return err
	}
	return traffic.Steer(ctx, ns, name, 0)
}

// flood sends until done is called, which gives the frames a second.
func (s *answersStand) flood(f answerFlood) (done func() (float64, error), err error) {
	if f.to == 0 {
		return func() (float64, error) { return 0, nil }, nil
	}
	flow := s.flow
	flow.Destinations = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, f.to})}
	g, err := traffic.NewGenerator(s.ns, flow)
	if err != nil {
		return nil, err
	}
	var stop atomic.Bool
	ended := make(chan error, 1)
	sent, began := 0, time.Now()
	go func() {
		const frames, core = 1 << 18, 1
		ended <- traffic.OnCPU(core, func() error {
			for !stop.Load() {
				if err := g.Send(frames); err != nil {
					return err
				}
				sent += frames
			}
			return nil
		})
	}()
	return func() (float64, error) {
		stop.Store(true)
		err := errors.Join(<-ended, g.Close())
		return float64(sent) / time.Since(began).Seconds(), err
	}, nil
}

// ask takes a window of each kind.
func (s *answersStand) ask(ctx context.Context, f answerFlood, t *answerTook) error {
	type window struct {
		took [2][]float64
		rate float64
	}
	w, ok, err := rounds.Undisturbed(ctx, &t.Counts, func() (w window, err error) {
		punted := s.reader.Frames()
		done, err := s.flood(f)
		if err != nil {
			return w, err
		}
		time.Sleep(200 * time.Millisecond) // until it is at its height
		w.took[0], err = answers.Time(answerTimes, answerPause, func() error {
			_, err := s.client.Slices(ctx)
			return err
		})
		if err == nil {
			asked := 0
			w.took[1], err = answers.Time(answerTimes, answerPause, func() error {
				asked++
				_, err := s.socket.Ask([]string{message.DoHello, message.DoCounters}[asked%2])
				return err
			})
		}
		rate, flooded := done()
		w.rate = rate
		if err == nil && f.to == 9 && s.reader.Frames() == punted {
			err = errors.New("no frame was punted")
		}
		return w, errors.Join(err, flooded)
	})
	if err != nil || !ok {
		return err
	}
	t.rate[f.name] = append(t.rate[f.name], w.rate)
	for i, took := range w.took {
		k := [2]string{answerKinds[i], f.name}
		t.took[k] = append(t.took[k], took...)
		t.worst[k] = append(t.worst[k], slices.Max(took))
	}
	return nil
}

// leases makes a cluster, and follows the leases of its hosts.
func (l *lab) leases(ctx context.Context) (*answers.Leases, error) {
	if err := os.MkdirAll(filepath.Dir(l.cluster()), 0o700); err != nil {
		return nil, err
	}
	if err := l.pergola(ctx, "dev", "cluster", "up", "-n", fmt.Sprint(leaseHosts), "--servers",
		fmt.Sprint(leaseHosts),
		"--dir", l.cluster()); err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for i := range leaseHosts {
		host := fmt.Sprintf("h%d", i+1)
		dirs[host] = filepath.Join(l.cluster(), host, "run", "pergola")
	}
	return answers.FollowLeases(dirs, member.LeaseTTL), nil
}

// follow takes how far apart renewals are, and the longest time without one, of all hosts. It counts whatever the
// hypervisor did: that makes it longer.
func (s *answersStand) follow(ctx context.Context, f answerFlood, leases *answers.Leases, long time.Duration,
	t *answerTook) error {
	done, err := s.flood(f)
	if err != nil {
		return err
	}
	r, err := leases.Follow(long, ctx.Done())
	_, flooded := done()
	if err := errors.Join(err, flooded, ctx.Err()); err != nil {
		return err
	}
	t.leases[f.name] = append(t.leases[f.name], r.Longest.Seconds())
	for _, apart := range r.Apart {
		t.renewals[f.name] = append(t.renewals[f.name], apart.Seconds()*1e3)
	}
	return nil
}

func (t *answerTook) rows() (rows []row) {
	for _, f := range answerFloods {
		for _, kind := range answerKinds {
			rows = append(rows, row{
				What: fmt.Sprintf("flood %s: %s, the longest of %d answers", f.name, kind,
					answerTimes), Unit: "ms",
				Values: t.worst[[2]string{kind, f.name}], Most: answerGoal})
		}
		if f.to != 0 {
			rows = append(rows, row{What: fmt.Sprintf("flood %s: longest time for which a lease "+
				"of %d hosts was not renewed", f.name, leaseHosts), Unit: "s",
				Values: t.leases[f.name],
				Most:   fenceAfter})
		}
	}
	return rows
}

func (t *answerTook) section() *chart.Section {
	s := &chart.Section{
		Title: "Answers under a flood",
		Intro: fmt.Sprintf("%d rounds of %d requests each, one after the other, %v apart.", t.Rounds,
			answerTimes,
			answerPause),
		Notes: append([]string{
			"A generator sends frames of 64 bytes from a host to a packet program, as fast as " +
				"they are taken, on one core. They enter the data path by softirq on the other one " +
				"(RPS), as those of a network card do. The program sends them on (**on the fast " +
				"path**), or punts all to a process that reads its slow path (**on a " +
				"sliver's socket**).",
			"Requests to a sliver's socket are hello and counters in turn, of the node that is flooded.",
			fmt.Sprintf("Leases are those of a cluster of %d machines (namespaces) on the same "+
				"cores, with a server each: %.0f s long, renewed each quarter of that. A "+
				"host that could not renew its lease for %d s ends nodes that may start "+
				"elsewhere.", leaseHosts,
				member.LeaseTTL.Seconds(), fenceAfter),
		}, t.Caveats()...),
	}
	table := chart.Table{Columns: []string{"flood", "offered, Mframes/s", "request", "median, ms", "99 %",
		"longest"}}
	c := chart.Chart{File: "flood-answers.svg", Title: "Answers under a flood", X: "ms",
		Y: "% of answers, at most so long", LogX: true, Steps: true}
	for _, f := range answerFloods {
		for _, kind := range answerKinds {
			took := t.took[[2]string{kind, f.name}]
			cells := []string{f.name, chart.Number(rounds.Middle(t.rate[f.name]) / 1e6), kind}
			for _, part := range []float64{0.5, 0.99, 1} {
				cells = append(cells, chart.Number(chart.Quantile(took, part)))
			}
			table.Rows = append(table.Rows, cells)
			c.Curves = append(c.Curves, chart.Distribution(f.name+": "+kind, took))
		}
		if f.to != 0 {
			cells := []string{f.name, "", "from one renewal of a lease to the next"}
			for _, part := range []float64{0.5, 0.99, 1} {
				cells = append(cells, chart.Number(chart.Quantile(t.renewals[f.name], part)))
			}
			table.Rows = append(table.Rows, cells)
		}
	}
	s.Tables, s.Charts = []chart.Table{table}, []chart.Chart{c}
	return s
}

// peerOf gives the number of the other end of a pair of virtual devices, in the calling thread's namespace.
func peerOf(name string) (int, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().ParentIndex, nil
}
