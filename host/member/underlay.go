package member

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/unit"
)

// Tunnels is the part of the host's network through which tunnels leave. Two values are equal if they are the same
// network, not one that was made anew.
type Tunnels interface {
	// OpenUnderlay lets tunnels in and out by interfaces of the machine, and by no others.
	OpenUnderlay(ctx context.Context, c UnderlayConfig) error
	// UnderlayState reads what OpenUnderlay made.
	UnderlayState(ctx context.Context) (UnderlayState, error)
}

// UnderlayConfig says by what tunnels leave the machine.
type UnderlayConfig struct {
	Interfaces []string
	NoXDP      bool // the programs of tc do all the work
	Bound      bool // packets of tunnels leave by these interfaces alone, wherever the machine's routes lead
	// BestEffort is the share of each core that frames without a reservation may have where line cards receive
	// them, behind those with one; 0: all are alike.
	BestEffort float64
}

// UnderlayState is what there is of it.
type UnderlayState struct {
	NICs     map[string]NIC    // the interfaces of the last OpenUnderlay, also such as are absent
	Counters map[string]uint64 // packets by what became of them: received, sent, and drops by reason
	Bound    bool              // see UnderlayConfig
}

// NIC is an interface that carries tunnels.
type NIC struct {
	Present bool
	Up      bool
	Index   int
	XDP     string // native, generic, or why there is none
}

// noUnderlay stands where an interface's name would.
const noUnderlay = "(none)"

// openEvery is how often the underlay is opened again, in case an interface came or went.
const openEvery = 5 * time.Second

// Underlay keeps the machine's interfaces open for tunnels. Its problems are no slice's: they are reported in the
// description of the host.
type Underlay struct {
	cluster    *hosts.Membership
	interfaces func() ([]hosts.Underlay, error)
	log        *slog.Logger

	problem Problem
	reopen  atomic.Bool // the interfaces are others since the last Open
	opened  struct {    // the last Open; of the goroutine that calls Open
		by   Tunnels
		at   time.Time
		rate unit.Rate // of the interface with this host's address
	}
	nics string // the interfaces as they were described last; of the goroutine that calls describe
}

// NewUnderlay gives the underlay of a member. interfaces lists the machine's.
func NewUnderlay(cluster *hosts.Membership, interfaces func() ([]hosts.Underlay, error), log *slog.Logger) *Underlay {
	return &Underlay{cluster: cluster, interfaces: interfaces, log: log}
}

// Open lets tunnels in and out: when there is a network, and again in case an interface came or went. by is nil where
// there is no network.
func (u *Underlay) Open(ctx context.Context, by Tunnels) {
	if by == nil {
		return
	}
	if changed := u.reopen.Swap(false); !changed && by == u.opened.by && time.Since(u.opened.at) < openEvery {
		return
	}
	u.opened.by, u.opened.at = by, time.Now()
	all, err := u.interfaces()
	var names []string
	found := underlaysOf(u.cluster, all)
	if err == nil {
		u.opened.rate = unit.Rate(found[0].Rate)
	}
	for _, one := range found {
		if one.Name != noUnderlay {
			names = append(names, one.Name)
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no interface that is up has this host's address %s", u.cluster.Address)
	}
	if err == nil {
		err = by.OpenUnderlay(ctx, UnderlayConfig{
			Interfaces: names, NoXDP: u.cluster.NoXDP, Bound: isBound(u.cluster, found),
			BestEffort: u.cluster.BestEffort,
		})
	}
	if u.problem.Set(err) && err != nil {
		u.log.Warn("open the interfaces that lead to other hosts", "error", err)
	}
}

// Rate is what the interface carries that has this host's address, as of the last Open; 0: it is not known.
func (u *Underlay) Rate() unit.Rate { return u.opened.rate }

// describe describes the interfaces that carry tunnels, the one with this host's address first. What is wrong with one
// is written in place of its XDP mode. changed reports that they are others than before. counted is false where there
// are no counters.
func (u *Underlay) describe(
	ctx context.Context, by Tunnels, h *hosts.Host,
) (state UnderlayState, changed, counted bool) {
	all, err := u.interfaces()
	if err != nil {
		u.log.Warn("describe this host", "error", err)
		return state, false, false
	}
	found := underlaysOf(u.cluster, all)
	h.Underlays, h.Bound = found, isBound(u.cluster, found)
	if by == nil {
		return state, false, false
	}
	if state, err = by.UnderlayState(ctx); err != nil {
		return state, false, false // the network was closed meanwhile, or is about to be opened anew
	}
	nics := ""
	for _, one := range found {
		nic := state.NICs[one.Name]
		nics += fmt.Sprintln(one.Name, nic.Index, nic.Up)
	}
	if nics != u.nics { // one that was made anew has nothing of ours
		u.nics = nics
		u.reopen.Store(true)
		changed = true
	}
	if len(state.NICs) > 0 || state.Bound { // also while the VPN that it is bound to is absent
		h.Bound = state.Bound
	}
	for i := range found {
		if nic, opened := state.NICs[found[i].Name]; opened && nic.Present {
			found[i].XDP = nic.XDP
		}
	}
	if problem := u.problem.String(); problem != "" && len(found) > 0 {
		found[0].XDP = "none: " + problem
	}
	return state, changed, true
}

// isBound reports whether packets of tunnels leave by the underlays alone: root named these, or one is a VPN. While a
// VPN is down, the machine's routes may lead its packets elsewhere, perhaps by the default route, and there they would
// not be encrypted. Other machines are not bound: their routes may well lead out by another network card to the same
// network.
func isBound(c *hosts.Membership, underlays []hosts.Underlay) bool {
	return len(c.Interfaces) > 0 || slices.ContainsFunc(underlays, hosts.Underlay.IsVPN)
}

// underlaysOf picks a member's underlays out of a machine's interfaces.
func underlaysOf(c *hosts.Membership, all []hosts.Underlay) []hosts.Underlay {
	isMain := func(u hosts.Underlay) bool {
		return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool {
			return p.Addr() == c.Address.Unmap()
		})
	}
	var picked []hosts.Underlay
	for _, u := range all {
		if slices.Contains(c.Interfaces, u.Name) || len(c.Interfaces) == 0 && isMain(u) {
			picked = append(picked, u)
		}
	}
	for _, name := range c.Interfaces {
		if !slices.ContainsFunc(picked, func(u hosts.Underlay) bool { return u.Name == name }) {
			picked = append(picked, hosts.Underlay{
				Name: name, XDP: "none: the interface is absent, down or has no address",
			})
		}
	}
	if len(picked) == 0 {
		why := fmt.Sprintf("none: no interface that is up has this host's address %s", c.Address)
		picked = append(picked, hosts.Underlay{Name: noUnderlay, XDP: why})
	}
	slices.SortStableFunc(picked, func(x, y hosts.Underlay) int {
		switch {
		case isMain(x) == isMain(y):
			return strings.Compare(x.Name, y.Name)
		case isMain(x):
			return -1
		}
		return 1
	})
	return picked
}
