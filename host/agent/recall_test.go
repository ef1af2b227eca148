package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/testkit"
)

// dependent is host A with the store of another machine's server.
type dependent struct {
	hostA
	dir       string
	log       *logWriter // of the agent that was started last
	authority *pki.Authority
	server    store.Config
}

func newDependent(t *testing.T) *dependent {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	authority, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	d := &dependent{hostA: hostA{T: t}, dir: dir, authority: authority}
	d.server = store.Config{
		Dir: filepath.Join(dir, "etcd"), LogFile: filepath.Join(dir, "etcd.log"),
		Cluster: &store.ClusterConfig{
			Name: "S", Identity: d.identity("S", pki.Server), ListenClient: freePort(t),
			ListenPeer: freePort(t),
		},
	}
	t.Cleanup(func() { d.sweep(filepath.Join(dir, "run")) })
	return d
}

func (d *dependent) identity(name string, role pki.Role) func() *pki.Identity {
	d.Helper()
	key, err := pki.NewKey()
	if err != nil {
		d.Fatal(err)
	}
	holder := pki.Member{Name: name, Role: role, Hosts: []string{"127.0.0.1"}}
	cert, err := d.authority.Issue(holder, key.Public(), time.Now())
	if err != nil {
		d.Fatal(err)
	}
	id := &pki.Identity{Certificate: cert, Key: key, Authority: d.authority.Certificate}
	return func() *pki.Identity { return id }
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
	s, err := store.Open(d.Context(), d.server)
	if err != nil {
		d.Fatal(err)
	}
	d.store = s
	stop = func() { _ = s.Close() }
	d.Cleanup(stop)
	return stop
}

// start starts an agent; stop ends it, and leaves what it made.
func (d *dependent) start() (stop func()) {
	d.Helper()
	s, err := store.Open(d.Context(), store.Config{
		Endpoints: []string{"https://" + d.server.Cluster.ListenClient},
		TLS:       pki.ClientConfig(d.identity("A", pki.Agent)), Follow: true, NoWait: true,
	}, store.WithOfflineCache(filepath.Join(d.dir, "run", "cache"), slog.New(slog.DiscardHandler)))
	if err != nil {
		d.Fatal(err)
	}
	d.log = &logWriter{to: d.Output()}
	d.agent = d.newAgent(d.dir, s, d.log)
	end := d.run(d.agent)
	stop = sync.OnceFunc(func() { end(); _ = s.Close() })
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
