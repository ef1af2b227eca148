package server

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
)

// outcasts tells of machines that were refused though they have a certificate: hosts that were removed, or whose name another machine has now. They
// try again and again; each is told of once in a while.
type outcasts struct {
	log    *slog.Logger
	events *events.Bus
	mu     sync.Mutex
	told   map[string]time.Time // in the last hour, by host and reason; guarded by mu
}

const outcastAgain = time.Hour

func newOutcasts(log *slog.Logger, bus *events.Bus) *outcasts {
	return &outcasts{log: log, events: bus, told: map[string]time.Time{}}
}

func (o *outcasts) refused(host, from string, why error) {
	if address, _, err := net.SplitHostPort(from); err == nil {
		from = address
	}
	if !o.isNews(host+" "+why.Error(), time.Now()) {
		return
	}
	o.log.Warn("a machine was refused", "host", host, "from", from, "why", why)
	o.events.Publish(events.Event{Kind: events.HostRefused, Message: fmt.Sprintf("a machine at %s, which was host %s, was refused: %v", from, host, why)})
}

func (o *outcasts) isNews(who string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.told, func(_ string, last time.Time) bool { return now.Sub(last) >= outcastAgain })
	if _, ok := o.told[who]; ok {
		return false
	}
	o.told[who] = now
	return true
}
