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

// refusals logs machines that were refused because their certificate is revoked: their host was removed, or another
// machine has its name now. Such a machine tries again and again: one host is logged at most once an hour for one
// reason.
type refusals struct {
	log    *slog.Logger
	events *events.Bus
	mu     sync.Mutex
	logged map[string]time.Time // in the last hour, by host and reason; guarded by mu
}

const refusalInterval = time.Hour

func newRefusals(log *slog.Logger, bus *events.Bus) *refusals {
	return &refusals{log: log, events: bus, logged: map[string]time.Time{}}
}

// add logs a refusal, and publishes it as an event.
func (r *refusals) add(host, from string, why error) {
	if address, _, err := net.SplitHostPort(from); err == nil {
		from = address
	}
	if !r.isNew(host+" "+why.Error(), time.Now()) {
		return
	}
	r.log.Warn("refuse a machine: its certificate is revoked", "host", host, "from", from, "reason", why)
	message := fmt.Sprintf("a machine at %s, which was host %s, was refused: %v", from, host, why)
	r.events.Publish(events.Event{Kind: events.HostRefused, Message: message})
}

func (r *refusals) isNew(refusal string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.logged, func(_ string, last time.Time) bool { return now.Sub(last) >= refusalInterval })
	if _, ok := r.logged[refusal]; ok {
		return false
	}
	r.logged[refusal] = now
	return true
}
