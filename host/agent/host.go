package agent

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/hosts"
)

// announceEvery is how often the agent looks whether its host is still as it said.
const announceEvery = 3 * time.Second

// announceAfter is how long it waits once it hears that an interface changed: changes come in numbers.
const announceAfter = 100 * time.Millisecond

// announceApart is how long it leaves between two looks: interfaces of others, containers' say, may change all the time.
const announceApart = time.Second

// announce tells the cluster what this host is, whenever that has changed, until ctx ends. What the host is also decides what tunnels may send by: that a
// driver takes no more of it has to be seen soon.
func (a *Agent) announce(ctx context.Context) {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	changed := make(chan struct{}, 1)
	stop, err := wire.WatchInterfaces(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		a.cfg.Log.Warn("changes of interfaces are noticed only now and then", "error", err)
	} else {
		defer func() { _ = stop() }() // nobody hears it any more
	}
	var told hosts.Host
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
		now := a.describe(ctx)
		if sameHost(told, now) {
			continue
		}
		err := a.cfg.Store.PutHost(ctx, now)
		if a.contact.note(err); err == nil {
			told = now
		}
	}
}

// sameHost reports whether nobody needs to be told of a difference: the load is never the same twice.
func sameHost(a, b hosts.Host) bool {
	if math.Abs(a.Load-b.Load) > 0.1*max(a.Cores, 1) {
		return false
	}
	a.Load, a.Updated = b.Load, b.Updated
	return reflect.DeepEqual(a, b)
}

// describe says what this host is. What cannot be found out is left out.
func (a *Agent) describe(ctx context.Context) hosts.Host {
	c := a.cfg.Cluster
	h := hosts.Host{
		Name: a.cfg.Host, Machine: c.Machine, Address: c.Address, API: c.API, Version: c.Version, Labels: maps.Clone(c.Labels),
		Cores: float64(runtime.NumCPU()), Load: a.cpu.measure(), Kernel: release(), Updated: time.Now(),
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if m, err := proc.Meminfo(); err == nil && m.MemTotalBytes != nil {
			h.Memory = *m.MemTotalBytes
		}
	}
	if wire.HaveNetem() == nil {
		h.Features = append(h.Features, hosts.FeatureNetem)
	}
	if wire.HaveHTB() == nil {
		h.Features = append(h.Features, hosts.FeatureHTB)
	}
	if c := a.cfg.Consents; c != nil {
		h.Allows = c.Terms().Allowance
	}
	a.describeUnderlays(ctx, &h)
	h.Paths = narrowPaths(a.knownPaths(), h.Underlays)
	return h
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// cpuMeter measures how many cores are busy.
type cpuMeter struct {
	last procfs.CPUStat
	rate float64
}

// measure gives the average since it was last asked, if that is long enough ago to say anything.
func (m *cpuMeter) measure() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0
	}
	busy := func(s procfs.CPUStat) float64 { return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal }
	now := stat.CPUTotal
	worked, idled := busy(now)-busy(m.last), now.Idle+now.Iowait-m.last.Idle-m.last.Iowait
	if total := worked + idled; total > 0.5 {
		m.rate = math.Round(100*worked/total*float64(len(stat.CPU))) / 100
		m.last = now
	}
	return m.rate
}

// describeUnderlays describes the interfaces that carry tunnels, the one with this host's address first. What is wrong with one is said in place of
// its XDP mode.
func (a *Agent) describeUnderlays(ctx context.Context, h *hosts.Host) {
	all, err := wire.Underlays()
	if err != nil {
		a.cfg.Log.Warn("describe this host", "error", err)
		return
	}
	found := underlaysOf(a.cfg.Cluster, all)
	h.Underlays, h.Bound = found, isBound(a.cfg.Cluster, found)
	s := a.network()
	if s == nil {
		return
	}
	state, err := s.Underlay(ctx)
	if err != nil {
		return // the substrate was closed meanwhile, or is about to be opened anew
	}
	nics := ""
	for _, u := range found {
		nic := state.NICs[u.Name]
		nics += fmt.Sprintln(u.Name, nic.Index, nic.Up)
	}
	if nics != a.nics { // one that was made anew has nothing of ours
		a.nics = nics
		a.reopen.Store(true)
		a.Nudge()
	}
	if len(state.NICs) > 0 || state.Bound { // also while the VPN that it is bound to is absent
		h.Bound = state.Bound
	}
	for i := range found {
		if nic, opened := state.NICs[found[i].Name]; opened && nic.Present {
			found[i].XDP = nic.XDP
		}
	}
	if trouble := a.underlay.get(); trouble != "" && len(found) > 0 {
		found[0].XDP = "none: " + trouble
	}
	a.noteStrays(h, state.Counters[offUnderlay], h.Updated)
}

// noUnderlay stands where an interface's name would.
const noUnderlay = "(none)"

// underlaysOf picks a member's underlays out of a machine's interfaces.
func underlaysOf(c *Cluster, all []hosts.Underlay) []hosts.Underlay {
	isMain := func(u hosts.Underlay) bool {
		return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Addr() == c.Address.Unmap() })
	}
	var some []hosts.Underlay
	for _, u := range all {
		if slices.Contains(c.Interfaces, u.Name) || len(c.Interfaces) == 0 && isMain(u) {
			some = append(some, u)
		}
	}
	for _, name := range c.Interfaces {
		if !slices.ContainsFunc(some, func(u hosts.Underlay) bool { return u.Name == name }) {
			some = append(some, hosts.Underlay{Name: name, XDP: "none: the interface is absent, down or has no address"})
		}
	}
	if len(some) == 0 {
		some = append(some, hosts.Underlay{Name: noUnderlay, XDP: fmt.Sprintf("none: no interface that is up has this host's address %s", c.Address)})
	}
	slices.SortStableFunc(some, func(x, y hosts.Underlay) int {
		switch {
		case isMain(x) == isMain(y):
			return strings.Compare(x.Name, y.Name)
		case isMain(x):
			return -1
		}
		return 1
	})
	return some
}

// openEvery is how often the agent looks whether an interface came or went.
const openEvery = 5 * time.Second

// openUnderlay lets tunnels out of the substrate, and in: when it is there, and again in case an interface came or went. Its trouble is no
// slice's, and is told in the description of the host.
func (a *Agent) openUnderlay(ctx context.Context) {
	s := a.network()
	if a.cfg.Cluster == nil || s == nil {
		return
	}
	if changed := a.reopen.Swap(false); !changed && s == a.opened.substrate && time.Since(a.opened.at) < openEvery {
		return
	}
	a.opened.substrate, a.opened.at = s, time.Now()
	all, err := wire.Underlays()
	var names []string
	found := underlaysOf(a.cfg.Cluster, all)
	for _, u := range found {
		if u.Name != noUnderlay {
			names = append(names, u.Name)
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no interface that is up has this host's address %s", a.cfg.Cluster.Address)
	}
	if err == nil {
		err = s.OpenUnderlay(ctx, wire.UnderlayConfig{Interfaces: names, NoXDP: a.cfg.Cluster.NoXDP, Bound: isBound(a.cfg.Cluster, found)})
	}
	if a.underlay.set(err) && err != nil {
		a.cfg.Log.Warn("open the way to other hosts", "error", err)
	}
}

// trouble is what goes wrong now, in words.
type trouble struct {
	mu   sync.Mutex // guards text
	text string
}

// set reports whether it is another one than before.
func (t *trouble) set(err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	news = text != t.text
	t.text = text
	return news
}

func (t *trouble) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}
