package member

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

const (
	announceEvery = 3 * time.Second        // between looks whether the host is still as it was described
	announceAfter = 100 * time.Millisecond // after an interface changed: changes come in numbers
	announceApart = time.Second            // between two looks: interfaces of containers may change all the time
)

// Config is what a Host needs.
type Config struct {
	Name    string // of the host, in the cluster
	Cluster *hosts.Membership
	Log     *slog.Logger
	Events  *events.Bus

	Terms      func() *hosts.Terms                                 // grants of its root to slices; nil: of all
	Features   func() []string                                     // hosts.FeatureNetem, ...
	Reservable slice.Reserve                                       // hosts.Host.Reservable
	Interfaces func() ([]hosts.Underlay, error)                    // the machine's
	Watch      func(changed func()) (stop func() error, err error) // calls changed whenever one of them changes
	Tunnels    func() Tunnels                                      // nil: there is no network now
	Changed    func()                                              // Underlay.Open is due
}

// Host describes one host to the cluster.
type Host struct {
	cfg      Config
	survey   *Survey
	underlay *Underlay
	cpu      cpuMeter // of the one goroutine that describes, as are the strays
	strays   strays
}

// NewHost gives the host of a member.
func NewHost(cfg Config, survey *Survey, underlay *Underlay) *Host {
	return &Host{cfg: cfg, survey: survey, underlay: underlay, strays: strays{log: cfg.Log, events: cfg.Events}}
}

// Announce hands the description of the host to put, whenever it has changed, until ctx ends. What put does not take is
// described again. The description decides what tunnels may send by: that a driver takes no more packets has to be seen
// soon.
func (h *Host) Announce(ctx context.Context, put func(context.Context, hosts.Host) error) {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	changed := make(chan struct{}, 1)
	stop, err := h.cfg.Watch(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		h.cfg.Log.Warn("watch interfaces: changes are noticed only every few seconds", "error", err)
	} else {
		defer func() { _ = stop() }() // nothing receives from it any more
	}
	var announced hosts.Host
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(announceAfter, time.Until(looked.Add(announceApart)))):
			}
		}
		looked = time.Now()
		now := h.Describe(ctx)
		if same(announced, now) {
			continue
		}
		if put(ctx, now) == nil {
			announced = now
		}
	}
}

// same reports whether two descriptions are the same for the cluster: the load never is the same twice.
func same(a, b hosts.Host) bool {
	if math.Abs(a.Load-b.Load) > 0.1*max(a.Cores, 1) {
		return false
	}
	a.Load, a.Updated = b.Load, b.Updated
	return reflect.DeepEqual(a, b)
}

// Describe gives what this host is. What cannot be found out is left out. It is called by one goroutine at a time.
func (h *Host) Describe(ctx context.Context) hosts.Host {
	c := h.cfg.Cluster
	d := hosts.Host{
		Name: h.cfg.Name, Machine: c.Machine, Address: c.Address, API: c.API, Version: c.Version,
		Labels: maps.Clone(c.Labels), Features: h.cfg.Features(), Kernel: release(),
		Load: h.cpu.measure(), Updated: time.Now(), Reservable: h.cfg.Reservable,
	}
	d.Cores, d.Memory = Capacity()
	if terms := h.cfg.Terms(); terms != nil {
		d.Allows = terms.Allowance
	}
	state, changed, counted := h.underlay.describe(ctx, h.cfg.Tunnels(), &d)
	if changed {
		h.cfg.Changed()
	}
	if counted {
		h.strays.describe(&d, state.Counters[offUnderlay], d.Updated)
	}
	d.Paths = narrowPaths(h.survey.Paths(), d.Underlays)
	return d
}

// Capacity is what this machine has: cores, and bytes of memory, which are 0 if they cannot be found out.
func Capacity() (cores float64, memory uint64) {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if m, err := proc.Meminfo(); err == nil && m.MemTotalBytes != nil {
			memory = *m.MemTotalBytes
		}
	}
	return float64(runtime.NumCPU()), memory
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
