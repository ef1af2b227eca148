package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/testkit"
)

// dependent is host A, to which another machine's server says what it is to have.
type dependent struct {
	hostA
	dir string
	log *logWriter // of the agent that was started last
	at  string     // where the server answers
}

func newDependent(t *testing.T) *dependent {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	d := &dependent{hostA: hostA{T: t}, dir: dir, at: freePort(t)}
	t.Cleanup(func() { d.sweep(filepath.Join(dir, "run")) })
	return d
}

// freePort finds a port below those that Linux gives to connections: the server finds it free again.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// serve starts the server; stop ends it.
func (d *dependent) serve() (stop func()) {
	d.Helper()
	s, err := store.Open(d.Context(), store.Config{
		Dir: filepath.Join(d.dir, "etcd"), LogFile: filepath.Join(d.dir, "etcd.log"),
	})
	if err != nil {
		d.Fatal(err)
	}
	d.store = s
	desk := agents.NewDesk(agents.DeskConfig{Store: s, Self: "S", Log: slog.New(slog.DiscardHandler)})
	listener, err := net.Listen("tcp", d.at)
	if err != nil {
		d.Fatal(err)
	}
	web := &http.Server{Handler: desk.Handler("A"), ReadHeaderTimeout: time.Minute}
	ctx, end := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { desk.Run(ctx) })
	tasks.Go(func() { _ = web.Serve(listener) })
	stop = sync.OnceFunc(func() {
		end()
		_ = web.Close()
		tasks.Wait()
		_ = s.Close()
	})
	d.Cleanup(stop)
	return stop
}

// RoundTrip is the agent's way to the server.
func (d *dependent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = d.at
	return http.DefaultTransport.RoundTrip(r)
}

// Drop does nothing: there is one server.
func (d *dependent) Drop() {}

// start starts an agent; stop ends it, and leaves what it made.
func (d *dependent) start() (stop func()) {
	d.Helper()
	life, end := context.WithCancel(context.Background())
	told := agents.NewClient(life, agents.ClientConfig{
		Host: "A", Session: d, CacheDir: filepath.Join(d.dir, "run", "cache"),
		Log: slog.New(slog.DiscardHandler),
	})
	d.log = &logWriter{to: d.Output()}
	d.agent = d.newAgent(d.dir, told, d.log)
	stopAgent := d.run(d.agent)
	stop = sync.OnceFunc(func() { stopAgent(); end() })
	d.Cleanup(stop)
	return stop
}

func TestAnAgentWithoutServersGoesByWhatTheySaidLast(t *testing.T) {
	d := newDependent(t)
	away := d.serve()
	stop := d.start()
	s := plantest.Spread(lab(), map[string]string{"h1": "A", "h2": "A", "h3": "A"})
	d.put(s, 0)
	d.awaitPID("all nodes", func() bool { return d.pid("h1") != 0 && d.pid("h2") != 0 && d.pid("h3") != 0 })
	stays, dies := d.pid("h2"), d.pid("h3")
	stop()
	away()

	stop = d.start()
	d.awaitPID("h1, which may start elsewhere, to be ended", func() bool {
		_, err := d.agent.machine.Runtime.Observe(sliver.ID{Slice: 1, Node: "h1"})
		return errors.Is(err, sliver.ErrNotFound)
	})
	if err := syscall.Kill(dies, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.awaitPID("h3 to be started again", func() bool { pid := d.pid("h3"); return pid != 0 && pid != dies })
	if d.pid("h2") != stays || d.pid("h1") != 0 {
		t.Errorf("h2 is process %d, was %d; h1 is process %d", d.pid("h2"), stays, d.pid("h1"))
	}
	again := d.pid("h3")
	stop() // and the next one finds that as it is to be

	d.start()
	d.serve()
	d.awaitPID("h1, with a lease", func() bool { return d.pid("h1") != 0 })
	if d.pid("h2") != stays || d.pid("h3") != again {
		t.Error("what ran was started anew by the servers' first word")
	}
	if err := d.store.DeleteSlice(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	d.awaitRelease(s)
}

// logWriter is a log that a test reads while it is written.
type logWriter struct {
	to io.Writer

	mu   sync.Mutex // guards text
	text strings.Builder
}

func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(line)
	return w.to.Write(line)
}

func (w *logWriter) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

// An agent that was never told what is wanted ends nothing for that.
func TestAnAgentThatWasToldNothingTouchesNothing(t *testing.T) {
	d := newDependent(t)
	d.start()
	testkit.Eventually(t, func() error {
		if !d.log.has("the store does not answer") {
			return errors.New("it has not tried")
		}
		return nil
	}, time.Minute, "the agent to miss its servers")
	select {
	case <-d.agent.inputs.Known():
		t.Error("it takes it that nothing is wanted")
	case <-time.After(2 * inputs.RetryStore):
	}
}
