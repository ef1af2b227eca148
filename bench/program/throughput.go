// Package program measures packet programs beside what forwards frames in user space: figures 9 and 10 of SPP
// ("Supercharging PlanetLab", SIGCOMM 2007), how slices with packet programs share a machine, and what is left of a
// flow beside others that overload a router (figures 4 and 5 of QuaSAR).
//
// Everything is made of namespaces, devices and programs that live no longer than a measurement. Frames come from a
// generator in the kernel, and are counted by a program beyond the last wire.
package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
)

// Variant is what forwards.
type Variant string

// Variants.
const (
	Program  Variant = "program"  // examples/programs/ipv4.c at a line card
	Redirect Variant = "redirect" // a program of XDP that does nothing but hand frames on
	UDP      Variant = "udp"      // recvmmsg and sendmmsg
	Ring     Variant = "ring"     // AF_PACKET with rings
	Click    Variant = "click"
)

// Title is the variant's name for people.
func (v Variant) Title() string {
	return map[Variant]string{
		Program: "packet program (ipv4.c)", Redirect: "plain XDP redirect", UDP: "C, UDP sockets",
		Ring: "C, AF_PACKET rings", Click: "Click",
	}[v]
}

// Variants lists them, in the order of columns.
var Variants = []Variant{Program, Redirect, UDP, Ring, Click}

// isPeer tells whether it runs in user space.
func (v Variant) isPeer() bool { return v == UDP || v == Ring || v == Click }

// Mode is who has which core. The generator always has one of its own, but for Shared.
type Mode string

// Modes.
const (
	// Peak: what forwards has a core of its own. Of user space it is the process: its frames are received on the
	// generator's core.
	Peak Mode = "peak"
	// Flood: all that is done for a frame is done on one core, and the generator gives what it can.
	Flood Mode = "flood"
	// One: generator and router share a core. Two: the same on two cores at once, each with a router and wires.
	One Mode = "one core"
	Two Mode = "two cores"
)

// Key says what a series is.
type Key struct {
	Variant Variant `json:"variant"`
	Mode    Mode    `json:"mode"`
	Payload int     `json:"payload"` // bytes of data in a datagram
}

// Throughput is what was measured.
type Throughput struct {
	rounds.Counts
	Payloads []int
	Samples  map[Key][]rounds.Sample // frames a second
	Offered  map[Key][]float64       // frames a second that the generator made
	Missing  map[Variant]string      // why a variant was not measured
}

// Payloads are those of figure 9, in bytes of data of a datagram.
var Payloads = []int{0, 200, 400, 800, 1400}

// headers is what comes before a datagram's data: Ethernet, IPv4, UDP.
const headers = 14 + 20 + 8

// The cores. Interrupts of a card would come where the router is.
const (
	routerCore = 0
	sourceCore = 1
)

// stand is a router that can be measured.
type stand struct {
	variant Variant
	wires   ends
	to      net.HardwareAddr // of the router, as frames have it
	address netip.Addr       // that frames are for
	ttl     int              // of frames that were forwarded
	prepare preparation
}

// MeasureThroughput takes rounds of all variants, payloads and modes.
func MeasureThroughput(ctx context.Context, wanted int, window time.Duration) (_ *Throughput, err error) {
	t := &Throughput{Counts: rounds.Counts{Wanted: wanted}, Payloads: Payloads, Samples: map[Key][]rounds.Sample{},
		Offered: map[Key][]float64{}, Missing: map[Variant]string{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	g, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(g.undo.Run)
	stands, err := t.stands(ctx, g, &steps)
	if err != nil {
		return nil, err
	}
	runner := rounds.Runner{Counts: t.Counts}
	var probes []*rounds.Probe
	var keys []Key
	for _, k := range t.keys() {
		pair := stands[k.Variant]
		if len(pair) == 0 {
			continue
		}
		b := &bout{key: k, stands: pair, window: window, throughput: t}
		steps.Push(b.close)
		keys = append(keys, k)
		probes = append(
			probes,
			&rounds.Probe{What: fmt.Sprintf("%s, %s, %d bytes", k.Variant, k.Mode, k.Payload),
				Window: b.run},
		)
	}
	err = runner.Run(ctx, probes)
	t.Counts = runner.Counts
	for i, p := range probes {
		t.Samples[keys[i]] = p.Samples
	}
	return t, err
}

// keys lists all series, so that what is compared is measured one after the other.
func (t *Throughput) keys() (all []Key) {
	for _, payload := range t.Payloads {
		for _, v := range Variants {
			all = append(all, Key{v, Peak, payload})
		}
		for _, v := range Variants {
			all = append(all, Key{v, Flood, payload})
		}
	}
	for _, v := range []Variant{Program, Redirect} {
		all = append(all, Key{v, One, 0}, Key{v, Two, 0})
	}
	return all
}

// stands makes all routers, two of those that are measured on two cores.
func (t *Throughput) stands(ctx context.Context, g *platform, steps *undo.Steps) (map[Variant][]stand, error) {
	object, err := g.compile(ctx, "ipv4.c")
	if err != nil {
		return nil, err
	}
	all := map[Variant][]stand{}
	for i := range 2 {
		n, err := g.build(ctx, row{first: uint16(100 * (i + 1)), slices: 1, nodes: 1, source: true, sink: true,
			object: object})
		if err != nil {
			return nil, err
		}
		card := n.Port(sourceNode, endDevice(0))
		all[Program] = append(all[Program], stand{Program, endsOf(n), inMAC, sinkAddress(0), 63,
			g.threads(func() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) }, card)})
		m, err := newMachine(1)
		if err != nil {
			return nil, err
		}
		steps.Push(m.undo.Run)
		all[Redirect] = append(all[Redirect], stand{Redirect, m.ends, inMAC, sinkAddress(0), 64, m.redirect})
		if i > 0 {
			break
		}
		if err := t.peers(ctx, g.dir, m, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// peers adds the routers in user space, all on the same machine.
func (t *Throughput) peers(ctx context.Context, dir string, m *machine, all map[Variant][]stand) error {
	udp, err := peers.Build(ctx, dir, "udp")
	if err != nil {
		return err
	}
	ring, err := peers.Build(ctx, dir, "ring")
	if err != nil {
		return err
	}
	core, lifetime := fmt.Sprint(routerCore), fmt.Sprint(int(peers.Lifetime.Seconds()))
	all[UDP] = []stand{{UDP, m.ends, inMAC, sourceAddress(0).Next(), 64, m.process(0, false, udp, core, lifetime,
		forwards(0, traffic.Port))}}
	all[Ring] = []stand{
		{Ring, m.ends, strangeMAC, sinkAddress(0), 63, m.process(0, false, ring, core, lifetime, inDevice(0),
			outDevice(0), outMAC.String(), sinkMAC.String())},
	}
	click, err := peers.Click()
	if err != nil {
		t.Missing[Click] = err.Error()
		return nil
	}
	config := filepath.Join(dir, "router.click")
	text := peers.ClickRouter(inDevice(0), outDevice(0), netip.PrefixFrom(sinkAddress(0), 24).Masked().String(),
		outMAC.String(), sinkMAC.String())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	all[Click] = []stand{
		{
			Click,
			m.ends,
			strangeMAC,
			sinkAddress(0),
			63,
			m.process(0, true, "taskset", "-c", core, "timeout", lifetime,
				click, config),
		},
	}
	return nil
}

// bout is a series that is measured.
type bout struct {
	key        Key
	stands     []stand
	window     time.Duration
	limit      float64 // frames a second that the generator makes at most; 0: as many as it can
	throughput *Throughput
	lanes      []*lane // opened by the first window
	undo       undo.Steps
}

// lane is a generator and a sink, with a router between.
type lane struct {
	generator *traffic.Generator
	sink      *traffic.Sink
	offered   float64 // frames a second that the generator made last
}

func (b *bout) close() error { return b.undo.Run() }

// open makes generators. Sinks hold a device only while they are used: the machine has many.
func (b *bout) open() error {
	for _, s := range b.stands {
		device, err := indexOf(s.wires.source, endDevice(0))
		if err != nil {
			return err
		}
		g, err := traffic.NewGenerator(s.wires.source, traffic.Flow{Device: device, From: [6]byte(sourceMAC),
			To: [6]byte(s.to), Source: sourceAddress(0), Destinations: []netip.Addr{s.address},
			Size: headers + b.key.Payload})
		if err != nil {
			return err
		}
		b.undo.Push(g.Close)
		b.lanes = append(b.lanes, &lane{generator: g, offered: 5e6})
	}
	return nil
}

// run is a window: how many frames a second arrived.
func (b *bout) run(ctx context.Context) (rate float64, err error) {
	if b.lanes == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	used := b.lanes[:1]
	if b.key.Mode == Two {
		used = b.lanes
	}
	for i, l := range used {
		s := b.stands[i]
		done, err := s.prepare(ctx, b.key.Mode)
		if err != nil {
			return 0, err
		}
		steps.Push(done)
		device, err := indexOf(s.wires.sink, endDevice(0))
		if err != nil {
			return 0, err
		}
		if s.variant.isPeer() { // what a socket sends would be copied for a program of XDP
			l.sink, err = traffic.NewHostSink(s.wires.sink, device)
		} else {
			l.sink, err = traffic.NewNICSink(s.wires.sink, device)
		}
		if err != nil {
			return 0, err
		}
		steps.Push(l.sink.Close)
	}
	return b.measure(used)
}

// measure gives the frames a second that arrive. What forwards on a core of its own may do best with less than all that
// the generator gives: a full ring is looked at by both cores for each frame. The best rate of those tried counts.
func (b *bout) measure(used []*lane) (float64, error) {
	const more, worth = 1.1, 1.02 // offered beyond what arrived; what a next try must bring
	best, err := b.once(used, b.limit)
	if b.limit > 0 || b.key.Mode != Peak {
		return best, err
	}
	for err == nil {
		var rate float64
		rate, err = b.once(used, more*best)
		if rate < worth*best {
			return max(best, rate), err
		}
		best = rate
	}
	return best, err
}

func (b *bout) once(used []*lane, limit float64) (float64, error) {
	rates, errs := make([]float64, len(used)), make([]error, len(used))
	var group sync.WaitGroup
	for i, l := range used {
		core := sourceCore
		if b.key.Mode == One || b.key.Mode == Two {
			core = i
		}
		group.Go(func() { rates[i], errs[i] = b.send(l, core, b.stands[i].ttl, limit) })
	}
	group.Wait()
	sum := 0.
	for _, r := range rates {
		sum += r
	}
	return sum, errors.Join(errs...)
}

func (b *bout) send(l *lane, core, ttl int, limit float64) (float64, error) {
	var m traffic.Measured
	w := traffic.Window{Warm: b.window / 4, Long: b.window, Rate: limit}
	err := traffic.OnCPU(core, func() (err error) {
		m, err = l.generator.Measure(w, 2*l.offered, l.sink)
		return err
	})
	if err != nil {
		return 0, err
	}
	if limit == 0 {
		l.offered = max(m.Offered, 1e5)
		b.throughput.Offered[b.key] = append(b.throughput.Offered[b.key], m.Offered)
	}
	if m.Frames == 0 && !b.key.Variant.isPeer() { // those may come to nothing under full load
		return 0, fmt.Errorf("of %.0f frames a second none arrived", m.Offered)
	}
	if m.Frames > 0 && m.TTL != ttl {
		return 0, fmt.Errorf("a frame has TTL %d, not %d", m.TTL, ttl)
	}
	return m.Arrived, nil
}
