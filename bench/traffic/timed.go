package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
)

// TimedSize is the length of the frames of a timed flow and of its cross traffic, as in figures 4 and 5 of QuaSAR.
const TimedSize = 70

// maxTimed bounds the frames of a flow in a window.
const maxTimed = 1 << 16

// TimedFlow says what a flow's frames look like. The cross traffic beside it has another UDP port, and Cross says what
// else is different.
type TimedFlow struct {
	Device       int // ifindex that they leave by
	From, To     [6]byte
	Source, Sink netip.Addr
	Label        uint32 // that the flow's frames have; 0: none, they are IPv4
	Class        uint8  // of the label
}

// Cross is traffic beside a flow: its frames are those of the flow, but for what is said here.
type Cross struct {
	Rate   float64    // frames a second; 0: there is none
	Device int        // ifindex that they leave by; 0: as those of the flow
	Sink   netip.Addr // that they are for, where they have no labels; not valid: as those of the flow
	// Labels is how many LSPs they go by in turn, each with a label, from Label on; 0: they are IPv4.
	Labels int
	Label  uint32
	// Times is how many times as much as they have reserved the LSPs send: one frame in so many has the class of
	// what has a reservation, the others have 0. 0: no frame has it.
	Times int
}

// Timed makes frames of a flow that say when they were made, and cross traffic, out of one device.
type Timed struct {
	ns     *os.File
	flow   TimedFlow
	obj    timedObjects
	sink   timedObjects
	detach undo.Steps
	window uint32
}

// NewTimed makes one for a device of a namespace, and the sink of both at devices of another one. All devices must take
// XDP frames, as those of Generator and NewNICSink.
func NewTimed(ns *os.File, f TimedFlow, sink *os.File, devices ...int) (*Timed, error) {
	t := &Timed{ns: ns, flow: f}
	if err := errors.Join(t.load(f), loadTimedObjects(&t.sink, nil)); err != nil {
		return nil, errors.Join(fmt.Errorf("make a timed flow: %w", err), t.Close())
	}
	err := netns.In(sink, func() error {
		for _, device := range devices {
			l, err := link.AttachXDP(link.XDPOptions{Program: t.sink.SinkTimed, Interface: device,
				Flags: link.XDPDriverMode})
			if err != nil {
				return err
			}
			t.detach.Push(l.Close)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the sink of a timed flow: %w", err), t.Close())
	}
	return t, nil
}

func (t *Timed) load(f TimedFlow) error {
	spec, err := loadTimed()
	if err != nil {
		return err
	}
	var label [4]byte
	if f.Label != 0 {
		const bottom, ttl = 1 << 8, 64
		entry := f.Label<<12 | uint32(f.Class)<<9 | bottom | ttl
		label = [4]byte{byte(entry >> 24), byte(entry >> 16), byte(entry >> 8), byte(entry)}
	}
	for name, value := range map[string]any{
		"device": uint32(f.Device), "from": f.From, "to": f.To, "source": word(f.Source),
		"destination": word(f.Sink), "label": word(netip.AddrFrom4(label)),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return spec.LoadAndAssign(&t.obj, nil)
}

// Arrival is a frame of the flow that arrived: when it was made, and when it came, by the same clock.
type Arrival struct{ Sent, Received time.Duration }

// TimedRun is what a window showed. Frames that came after it ended count as well.
type TimedRun struct {
	Sent, Cross  int       // frames that were made: of the flow, and of the cross traffic
	Arrivals     []Arrival // of the flow, in the order in which they were made
	CrossArrived int
	// Of the cross traffic, what has the class of what has a reservation.
	Reserved, ReservedArrived int
}

// Run makes frames for so long, so many a second of the flow and of the cross traffic, on the calling thread's core.
// Below what the generator can make, and of its core gets, the cross traffic has its rate.
func (t *Timed) Run(long time.Duration, flow float64, cross Cross) (r TimedRun, err error) {
	if most := flow * long.Seconds(); most > maxTimed {
		return r, fmt.Errorf("send a timed flow: %.0f frames: want at most %d", most, maxTimed)
	}
	if err := t.begin(long, flow, cross); err != nil {
		return r, fmt.Errorf("send a timed flow: %w", err)
	}
	const (
		each  = 80 * time.Nanosecond // that a run takes which makes no frame, or a little less
		least = 1 << 12              // runs of a call, which idles for about 25 ms in its end
		// What is made at once is sent at once: a frame waits for so many runs at most.
		batch = 8
	)
	for begun := time.Now(); err == nil && time.Since(begun) < long; {
		runs := max(least, int((long-time.Since(begun))/each))
		err = netns.In(t.ns, func() error {
			_, err := t.obj.MakeTimed.Run(&ebpf.RunOptions{Data: make([]byte, TimedSize),
				Repeat: uint32(runs), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch})
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("send a timed flow: %w", err)
	}
	return t.end()
}

func (t *Timed) begin(long time.Duration, flow float64, cross Cross) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	apart := uint64(0)
	if cross.Rate > 0 {
		apart = uint64(1e9 / cross.Rate)
	}
	if !cross.Sink.IsValid() {
		cross.Sink = t.flow.Sink
	}
	t.window++
	at := uint64(now.Nano())
	return errors.Join(t.obj.CrossDevice.Set(uint32(cmp.Or(cross.Device, t.flow.Device))),
		t.obj.CrossDestination.Set(word(cross.Sink)), t.obj.CrossLabel.Set(cross.Label),
		t.obj.CrossLabels.Set(uint32(cross.Labels)), t.obj.CrossTimes.Set(uint32(cross.Times)),
		t.sink.ReservedArrived.Set(uint64(0)), t.obj.ReservedMade.Set(uint64(0)),
		t.sink.FlowArrived.Set(uint64(0)), t.sink.CrossArrived.Set(uint64(0)),
		t.sink.Window.Set(t.window), t.obj.Window.Set(t.window), t.obj.FlowMade.Set(uint64(0)),
		t.obj.CrossMade.Set(uint64(0)), t.obj.FlowApart.Set(uint64(1e9/flow)), t.obj.CrossApart.Set(apart),
		t.obj.FlowDue.Set(at), t.obj.CrossDue.Set(at), t.obj.SendUntil.Set(at+uint64(long)))
}

// end waits until no further frame comes.
func (t *Timed) end() (r TimedRun, err error) {
	const quiet = 20 * time.Millisecond
	var made, crossed, reserved, arrived, before uint64
	if err := errors.Join(t.obj.FlowMade.Get(&made), t.obj.CrossMade.Get(&crossed),
		t.obj.ReservedMade.Get(&reserved)); err != nil {
		return r, fmt.Errorf("read a timed flow: %w", err)
	}
	r.Sent, r.Cross, r.Reserved = int(made), int(crossed), int(reserved)
	for last := uint64(1 << 63); ; last = before {
		if err := errors.Join(t.sink.FlowArrived.Get(&arrived), t.sink.CrossArrived.Get(&crossed)); err != nil {
			return r, fmt.Errorf("read the sink of a timed flow: %w", err)
		}
		if before = arrived + crossed; before == last {
			break
		}
		time.Sleep(quiet)
	}
	if err := t.sink.ReservedArrived.Get(&reserved); err != nil {
		return r, fmt.Errorf("read the sink of a timed flow: %w", err)
	}
	r.CrossArrived, r.ReservedArrived = int(crossed), int(reserved)
	r.Arrivals, err = t.arrivals(int(made))
	return r, err
}

// arrivals reads those of the window, and empties the map.
func (t *Timed) arrivals(made int) (all []Arrival, err error) {
	keys, values := make([]uint32, made), make([]timedArrival, made)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if made == 0 {
		return nil, nil
	}
	if _, err := t.sink.Arrivals.BatchLookup(&ebpf.MapBatchCursor{}, keys, values, nil); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the arrivals of a timed flow: %w", err)
	}
	for _, v := range values {
		if v.Received != 0 {
			all = append(all, Arrival{time.Duration(v.Sent), time.Duration(v.Received)})
		}
	}
	if _, err := t.sink.Arrivals.BatchUpdate(keys, make([]timedArrival, made), nil); err != nil {
		return nil, fmt.Errorf("forget the arrivals of a timed flow: %w", err)
	}
	return all, nil
}

// Close takes the sink from its devices, and lets go of the programs.
func (t *Timed) Close() error { return errors.Join(t.detach.Run(), t.obj.Close(), t.sink.Close()) }
