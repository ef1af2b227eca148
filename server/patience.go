package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/pki"
	"github.com/pergola-net/pergola/store"
)

// A member whose servers do not answer waits for them: after a power cut, all machines start at once.
const (
	storePatience = 2 * time.Second // before those who ask are told
	storePause    = time.Second
	storeWord     = 30 * time.Second // between two lines in the log
)

// awaitStore opens the store. An agent tries until its servers answer, and says so to who asks meanwhile.
func (s *server) awaitStore(ctx context.Context, cfg store.Config, listener net.Listener) (*store.Store, error) {
	if s.cluster == nil || s.cluster.current().Role != pki.Agent {
		return store.Open(ctx, cfg)
	}
	opened := make(chan struct{})
	var excused sync.WaitGroup
	excused.Go(func() {
		select {
		case <-opened:
		case <-time.After(storePatience):
			stop := excuse(listener, fmt.Sprintf("this machine is a member of a cluster whose servers (%s) do not answer: it tries again and again; what runs here goes on",
				strings.Join(cfg.Endpoints, ", ")))
			<-opened
			stop()
		}
	})
	defer excused.Wait()
	defer close(opened)
	for said := (time.Time{}); ; {
		st, err := store.Open(ctx, cfg)
		if errors.Is(err, store.ErrNoHost) {
			return nil, fmt.Errorf("%w: remove %s here, and use a new token (pergola agent --join)", err, s.cluster.kept.dir)
		}
		if err == nil || ctx.Err() != nil {
			return st, err
		}
		if time.Since(said) > storeWord {
			s.Log.Warn("the servers of the cluster do not answer: trying again", "error", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(storePause):
		}
	}
}

// excuse answers every request with the reason why there is no answer, until stop is called. The listener stays open.
func excuse(listener net.Listener, why string) (stop func()) {
	u, ok := listener.(*net.UnixListener)
	if !ok {
		return func() {}
	}
	second, err := dup(u)
	if err != nil {
		return func() {}
	}
	web := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusServiceUnavailable, why)
	})}
	var served sync.WaitGroup
	served.Go(func() { _ = web.Serve(second) }) // until it is closed
	return func() {
		web.Close()
		served.Wait()
	}
}

// dup gives a listener at the same socket, which can be closed by itself.
func dup(l *net.UnixListener) (net.Listener, error) {
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	second, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if u, ok := second.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return second, nil
}
