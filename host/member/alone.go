package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/model/hosts"
)

// Alone opens an interface of a machine that is in no cluster for UDP ports of packet programs, as long as there are
// any: the one of the default route, or else the first one that has an IPv4 address. There is no line card there: the
// programs of tc do all the work, so that no driver has to be set up anew.
type Alone struct {
	interfaces func() ([]hosts.Underlay, error)
	log        *slog.Logger

	problem Problem
	opened  struct { // the last call that changed something; of the goroutine that calls Open
		by   Tunnels
		at   time.Time
		name string // "": none
	}
}

// NewAlone gives that of a machine whose interfaces are listed by a function.
func NewAlone(interfaces func() ([]hosts.Underlay, error), log *slog.Logger) *Alone {
	return &Alone{interfaces: interfaces, log: log}
}

// Open lets packets in and out, or, where nothing wants them any more, no longer. It returns the address that they are
// for; none where nothing wants them, or where the machine has none. by is nil where there is no network.
func (a *Alone) Open(ctx context.Context, by Tunnels, wanted bool) (address netip.Addr) {
	var name string
	var err error
	if wanted {
		name, address, err = a.choose()
	}
	same := by == a.opened.by && name == a.opened.name && time.Since(a.opened.at) < openEvery
	if by != nil && !same && err == nil && (wanted || by != a.opened.by || a.opened.name != "") {
		c := UnderlayConfig{NoXDP: true}
		if name != "" {
			c.Interfaces = []string{name}
		}
		err = by.OpenUnderlay(ctx, c)
		a.opened.by, a.opened.at, a.opened.name = by, time.Now(), name
	}
	if a.problem.Set(err) && err != nil {
		a.log.Warn("open an interface for UDP ports of packet programs", "error", err)
	}
	return address
}

func (a *Alone) choose() (name string, address netip.Addr, err error) {
	all, err := a.interfaces()
	if err != nil {
		return "", address, fmt.Errorf("list interfaces: %w", err)
	}
	for _, one := range all {
		for _, p := range one.Addresses {
			if p.Addr().Is4() {
				return one.Name, p.Addr(), nil
			}
		}
	}
	return "", address, errors.New("no interface that is up has an IPv4 address")
}
