package agent

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/sliver"
)

// watchFastPath looks at the fast path until ctx ends, and asks for a look at the host when it fails for some router or
// works again, or when a router has lost an interface.
func (a *Agent) watchFastPath(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s := a.dataPath(); s != nil {
			a.fast.numberRouters(s)
		}
		if a.fast.look() {
			a.Nudge()
		}
	}
}

// troubleLocked words what keeps a router off the fast path that may be on it; empty: nothing.
func (f *fastPath) troubleLocked(id sliver.ID) string {
	_, known := f.routers[id]
	switch {
	case f.trouble != nil:
		return f.trouble.Error()
	case !known:
		return ""
	case f.refused[id] != nil:
		return f.refused[id].Error()
	}
	st, err := f.mirror.Status(id.String())
	if err != nil {
		return err.Error()
	}
	if !st.Synchronised {
		return strings.Join(st.IPv4.Why, "; ")
	}
	return ""
}

// troubleOf words what keeps a router off the fast path, when it was last looked.
func (f *fastPath) troubleOf(id sliver.ID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.troubles[id]
}

// patience is how many looks, one a second, a router may take to be read: a million routes take some.
const patience = 5

// look notes the troubles that there are, and reports whether others last than before, or whether a router has lost an
// interface: what the mirror hears of one that is moved away, nobody else does.
func (f *fastPath) look() (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, lost, lasting := make(map[sliver.ID]int), make(map[sliver.ID]int), make(map[sliver.ID]string)
	for id := range f.routers {
		if st, err := f.mirror.Status(id.String()); err == nil && len(st.Lost) > 0 {
			lost[id] = len(st.Lost)
		}
		if t := f.troubleLocked(id); t != "" {
			if seen[id] = f.seen[id] + 1; seen[id] >= patience {
				lasting[id] = t
			}
		}
	}
	changed = !maps.Equal(lasting, f.troubles) || !maps.Equal(lost, f.lost)
	f.seen, f.lost, f.troubles = seen, lost, lasting
	return changed
}

// numberRouters notes under which numbers the programs know the routers, and begins to count at zero for those that are
// new.
func (f *fastPath) numberRouters(s DataPath) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, r := range f.routers {
		number := numberOf(s, r)
		if number == 0 || number == f.counted[id] {
			continue
		}
		f.counted[id] = number
		if err := s.ClearPunts(number); err != nil {
			f.log.Warn("clear the counters of a router", "router", id.String(), "error", err)
		}
	}
}

// numberOf asks the programs' memory; all ports of a router say the same, but some may not be legs yet.
func numberOf(s DataPath, r mirrored) uint32 {
	for _, port := range r.legs {
		if number, err := s.Router(port); err == nil && number != 0 {
			return number
		}
	}
	return 0
}

// punts counts the frames that the fast path handed to a router's kernel, by reason.
func (f *fastPath) punts(ctx context.Context, s DataPath, id sliver.ID) (map[string]uint64, error) {
	f.mu.Lock()
	number := f.counted[id]
	f.mu.Unlock()
	if number == 0 || s == nil {
		return nil, nil
	}
	return s.Punts(ctx, number)
}

// noteAudit counts what the continuous audit finds; the mirror logs it.
func (f *fastPath) noteAudit(_ string, found []mirror.Difference) {
	f.differences.Add(float64(len(found)))
}
