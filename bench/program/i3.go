package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// i3Header is what a packet of I3 with one identifier has before its payload.
const i3Header = traffic.MaxBody

// i3ID is the identifier to which packets are sent: its trigger is that of the sink.
var i3ID = ident.FromName("bench")

// i3Server is the address of the node that is a server of I3. The sink counts datagrams to its port, so it is the
// server's, too.
func i3Server(s int) netip.AddrPort { return netip.AddrPortFrom(sinkAddress(s).Next(), traffic.Port) }

// i3Node is what the program is to know of its node. Receivers are the sink, and hosts at the source.
func i3Node(s int) layout.Node {
	return layout.Node{
		Addr: i3Server(s), MACs: []layout.MAC{layout.MAC(inMAC), layout.MAC(outMAC)},
		Reach: func(to netip.Addr) (layout.Neighbor, bool) {
			if netip.PrefixFrom(sourceAddress(s), 24).Contains(to) {
				return layout.Neighbor{
					Interface: 1,
					To:        layout.MAC(sourceMAC),
					From:      layout.MAC(inMAC),
				}, true
			}
			return layout.Neighbor{Interface: 2, To: layout.MAC(sinkMAC), From: layout.MAC(outMAC)}, true
		},
	}
}

// i3Filters are those of a server with a trigger of the sink.
func i3Filters(s int) (all []string) {
	n, filters := i3Node(s), layout.Filters{}
	n.Add(filters, fastpath.Filter{Prefix: ident.PrefixOf(i3ID, 8*ident.KeySize), Action: fastpath.Action{
		Kind: fastpath.Deliver, To: []netip.AddrPort{netip.AddrPortFrom(sinkAddress(s), traffic.Port)}}})
	for name, result := range filters {
		all = append(all, name+" -> "+result)
	}
	return all
}

// startI3 writes the ring of a server that is alone: as i3d would.
func (g *platform) startI3(ctx context.Context, first uint16, slice int) (err error) {
	f, m, err := g.HostNetwork.ProgramMemory(ctx, fmt.Sprintf("bench%d.%s", first, nodeName(slice, 0)))
	if err != nil {
		return err
	}
	if f == nil || m.Element != layout.Size {
		return fmt.Errorf(
			"write the ring: an element of the program's memory has %d bytes and not %d",
			m.Element,
			layout.Size,
		)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	page := os.Getpagesize()
	memory, err := unix.Mmap(int(f.Fd()), 0, (m.Count*m.Element+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the program's memory: %w", err)
	}
	n := i3Node(slice)
	ring := n.Ring(&chord.Routes{Own: chord.OwnAll})
	binary.NativeEndian.PutUint64(ring, 1) // version
	copy(memory[layout.Size:], ring)
	*(*uint64)(unsafe.Pointer(&memory[0])) = 1 // the one in use
	return unix.Munmap(memory)
}

// i3Body is what the datagrams of a packet with such a payload begin with.
func i3Body(id ident.ID, payload int) []byte {
	return wire.New(wire.Data, []ident.ID{id}, make([]byte, payload))[:i3Header]
}

// MixKey says what a series is.
type MixKey struct {
	Payload int     // of packets of I3
	Share   float64 // IPv4's, of all frames
}

// Mix is what was measured.
type Mix struct {
	rounds.Counts
	Payloads []int
	Shares   []float64
	Rate     map[int]float64            // frames a second that are offered, by payload
	Sum      map[MixKey][]rounds.Sample // frames a second that arrived
	I3, IPv4 map[MixKey][]float64       // of them
	Offered  map[MixKey][]float64
}

// mixLoad is what is offered, of the peak of the slower of the two.
const mixLoad = 0.9

// MeasureMix is figure 11 of SPP: a slice with a router, and one with a server of I3, each behind a card of its own,
// share one core. Frames are of one length, and there are as many of them a second whatever IPv4's share is.
func MeasureMix(ctx context.Context, wanted int, window time.Duration) (_ *Mix, err error) {
	m := &Mix{Counts: rounds.Counts{Wanted: wanted}, Payloads: []int{0, 40, 80},
		Shares: []float64{0, 0.25, 0.5, 0.75, 1},
		Rate:   map[int]float64{}, Sum: map[MixKey][]rounds.Sample{}, I3: map[MixKey][]float64{},
		IPv4: map[MixKey][]float64{}, Offered: map[MixKey][]float64{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	g, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(g.undo.Run)
	stand, err := g.mixStand(ctx)
	if err != nil {
		return nil, err
	}
	runner := rounds.Runner{Counts: m.Counts}
	var probes []*rounds.Probe
	var keys []MixKey
	for _, payload := range m.Payloads {
		b := &mixBout{mix: m, payload: payload, window: window, stand: stand}
		steps.Push(b.close)
		for _, share := range m.Shares {
			k := MixKey{payload, share}
			keys = append(keys, k)
			probes = append(probes, &rounds.Probe{
				What:   fmt.Sprintf("I3 and IPv4, %d bytes, %.0f %% IPv4", payload, 100*share),
				Window: func(ctx context.Context) (float64, error) { return b.run(ctx, k) }})
		}
	}
	err = runner.Run(ctx, probes)
	m.Counts = runner.Counts
	for i, p := range probes {
		m.Sum[keys[i]] = p.Samples
	}
	return m, err
}

// Slices of a mix.
const (
	mixIPv4 = iota
	mixI3
)

// mixTTL is that of frames which were forwarded.
var mixTTL = [2]int{mixIPv4: 63, mixI3: 64}

// mixStand is two slices between a source and a sink.
type mixStand struct {
	wires ends
	cards []func(context.Context, Mode) (func() error, error)
}

// mixStand makes a router, and a server of I3.
func (g *platform) mixStand(ctx context.Context) (s mixStand, err error) {
	r := row{first: 100, slices: 2, nodes: 1, source: true, sink: true, filters: func(s int) []string {
		if s == mixI3 {
			return i3Filters(s)
		}
		return routes(s)
	}}
	for _, name := range []string{mixIPv4: "ipv4.c", mixI3: "i3.c"} {
		object, err := g.compile(ctx, name)
		if err != nil {
			return s, err
		}
		r.objects = append(r.objects, object)
	}
	n, err := g.build(ctx, r)
	if err != nil {
		return s, err
	}
	s.wires = endsOf(n)
	for slice := range r.slices {
		s.cards = append(
			s.cards,
			g.threads(func() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) },
				n.Port(sourceNode, endDevice(slice))),
		)
	}
	return s, g.startI3(ctx, r.first, mixI3)
}

// mixBout is the windows with frames of one length.
type mixBout struct {
	mix       *Mix
	payload   int
	window    time.Duration
	stand     mixStand
	generator *traffic.Generator // opened by the first window
	undo      undo.Steps
}

func (b *mixBout) close() error { return b.undo.Run() }

func (b *mixBout) open() error {
	f := traffic.Flow{From: [6]byte(sourceMAC), To: [6]byte(inMAC), Source: sourceAddress(mixIPv4), Mixed: true,
		Destinations: []netip.Addr{mixIPv4: sinkAddress(mixIPv4), mixI3: i3Server(mixI3).Addr()},
		Size:         headers + i3Header + b.payload, Body: i3Body(i3ID, b.payload)}
	for slice := range mixTTL {
		device, err := indexOf(b.stand.wires.source, endDevice(slice))
		if err != nil {
			return err
		}
		f.Devices = append(f.Devices, device)
	}
	g, err := traffic.NewGenerator(b.stand.wires.source, f)
	if err == nil {
		b.generator = g
		b.undo.Push(g.Close)
	}
	return err
}

// run is a window: how many frames a second arrived, of both kinds.
func (b *mixBout) run(ctx context.Context, k MixKey) (rate float64, err error) {
	if b.generator == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	var sinks [2]*traffic.Sink
	for slice := range sinks {
		done, err := b.stand.cards[slice](ctx, Peak)
		if err != nil {
			return 0, err
		}
		steps.Push(done)
		device, err := indexOf(b.stand.wires.sink, endDevice(slice))
		if err != nil {
			return 0, err
		}
		if sinks[slice], err = traffic.NewNICSink(b.stand.wires.sink, device); err != nil {
			return 0, err
		}
		steps.Push(sinks[slice].Close)
	}
	err = traffic.OnCPU(sourceCore, func() error {
		if err := b.calibrate(sinks); err != nil {
			return err
		}
		offered, arrived, err := b.send(k.Share, b.mix.Rate[b.payload], sinks)
		if err != nil {
			return err
		}
		b.mix.IPv4[k] = append(b.mix.IPv4[k], arrived[mixIPv4])
		b.mix.I3[k] = append(b.mix.I3[k], arrived[mixI3])
		b.mix.Offered[k] = append(b.mix.Offered[k], offered)
		rate = arrived[mixIPv4] + arrived[mixI3]
		return nil
	})
	return rate, err
}

// send gives frames a second that were offered, and that arrived in each slice. share is IPv4's, limit frames a second;
// 0: as many as the generator can.
func (b *mixBout) send(share, limit float64, sinks [2]*traffic.Sink) (offered float64, arrived [2]float64, err error) {
	w := traffic.Window{Warm: b.window / 4, Long: b.window, Rate: limit}
	offered, seen, err := b.generator.Mix(w, share, sinks)
	if err != nil {
		return 0, arrived, err
	}
	for slice, part := range [2]float64{mixIPv4: share, mixI3: 1 - share} {
		if s := seen[slice]; s.Frames > 0 && s.TTL != mixTTL[slice] || s.Frames == 0 && part > 0 {
			return 0, arrived, fmt.Errorf(
				"of slice %d, %d frames arrived, the last with TTL %d",
				slice,
				s.Frames,
				s.TTL,
			)
		}
		arrived[slice] = float64(seen[slice].Frames) / w.Long.Seconds()
	}
	return offered, arrived, nil
}

// calibrate finds out, once for a length, how many frames are offered.
func (b *mixBout) calibrate(sinks [2]*traffic.Sink) error {
	if b.mix.Rate[b.payload] > 0 {
		return nil
	}
	_, ipv4, err := b.send(1, 0, sinks)
	if err != nil {
		return err
	}
	_, i3, err := b.send(0, 0, sinks)
	if err != nil {
		return err
	}
	b.mix.Rate[b.payload] = mixLoad * min(ipv4[mixIPv4], i3[mixI3])
	return nil
}
