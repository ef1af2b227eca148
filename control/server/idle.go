package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// firstSliceTimeout is how long a server that was started on demand waits for its first slice.
const firstSliceTimeout = 15 * time.Second

// errIdle ends a server that has nothing left to do.
var errIdle = errors.New("idle")

// idle tells when a server that was started on demand has nothing left to do: no slice, and no client. It is a small
// state machine; its inputs are the HTTP server's connections and the store's watch.
type idle struct {
	mu      sync.Mutex
	clients map[net.Conn]bool // connections that are open; guarded by mu
	slices  int               // guarded by mu
	served  bool              // there was a slice; guarded by mu
	ended   bool              // wait has returned; guarded by mu
	changed chan struct{}     // has room for one
}

func newIdle() *idle {
	return &idle{clients: map[net.Conn]bool{}, changed: make(chan struct{}, 1)}
}

func (i *idle) poke() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// connState is an http.Server's ConnState. A connection that became a websocket counts as closed here: the server has a
// slice then. A connection that comes after the decision to end is closed at once: to the client that is as if no
// server ran, and it starts the next one.
func (i *idle) connState(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended && state == http.StateNew {
		_ = c.Close()
		return
	}
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle:
		i.clients[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(i.clients, c)
		i.poke()
	}
}

func (i *idle) setSlices(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.slices = n
	i.served = i.served || n > 0
	i.poke()
}

// end decides whether the server ends: there is nothing left to do.
func (i *idle) end(expired bool) (ended, busy bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	busy = i.slices > 0 || len(i.clients) > 0
	i.ended = !busy && (i.served || expired)
	return i.ended, busy
}

// wait returns when the server is idle: at once after its last slice and client have gone; if it never had a slice,
// a while after its last client.
func (i *idle) wait(ctx context.Context) {
	timer := time.NewTimer(firstSliceTimeout)
	defer timer.Stop()
	for {
		expired := false
		select {
		case <-ctx.Done():
			return
		case <-i.changed:
		case <-timer.C:
			expired = true
		}
		ended, busy := i.end(expired)
		switch {
		case ended:
			return
		case busy:
			timer.Reset(firstSliceTimeout)
		}
	}
}
