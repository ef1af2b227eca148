package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/topology"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// await waits for a condition that nothing announces.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	testkit.Await(t, condition, 20*time.Second, what)
}

func alive(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	return err == nil && unix.Kill(n, 0) == nil
}

// lines is a writer that hands on whole lines.
type lines struct {
	rest  string
	found chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest += string(p)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			return len(p), nil
		}
		l.rest = rest
		l.found <- strings.TrimSpace(line)
	}
}

func (l *lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l.found:
		return line
	case <-time.After(10 * time.Second):
		t.Fatal("no more output")
		return ""
	}
}

// TestMain turns the test's own program into a server or a client, when a test asks for it.
func TestMain(m *testing.M) {
	switch os.Getenv("PERGOLA_TEST_ROLE") {
	case "server":
		beServer()
	case "client":
		beClient()
	}
	os.Exit(m.Run())
}

func beServer() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dir := os.Getenv("PERGOLA_TEST_DIR")
	cfg := Config{
		StateDir: filepath.Join(dir, "run"), DataDir: filepath.Join(dir, "lib"),
		LogDir: filepath.Join(dir, "log"),
		Host:   "testhost", NewAgent: newFake, ExitWhenIdle: os.Getenv("PERGOLA_TEST_IDLE") != "",
		Group: os.Getenv("PERGOLA_TEST_GROUP"),
	}
	if err := Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beClient applies a topology and prints what the server says.
func beClient() {
	ctx := context.Background()
	c, err := client.Dial(ctx, os.Getenv("PERGOLA_TEST_SOCKET"))
	if err != nil {
		fmt.Println("dial:", err)
		os.Exit(0)
	}
	top := pair("theirs")
	if os.Getenv("PERGOLA_TEST_BIND") != "" {
		node := top.Nodes["a"]
		node.Binds = topology.Strings{"/etc:/mnt"}
		top.Nodes["a"] = node
	}
	applied, err := c.Apply(ctx, top.Name, top, false)
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		fmt.Println("problem:", p.Status, p.Detail)
	case err != nil:
		fmt.Println("error:", err)
	default:
		fmt.Println("generation:", applied.Generation)
	}
	os.Exit(0)
}

func TestKilledServerComesBack(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "run", "pergola.sock")
	env := []string{"PERGOLA_TEST_ROLE=server", "PERGOLA_TEST_DIR=" + dir}
	first, _ := testkit.Child(t, env...)
	c := dialWhenReady(t, socket)
	up(t, c, pair("net"))

	second, output := testkit.Child(t, env...)
	output.Scan()
	if line := output.Text(); !strings.Contains(line, fmt.Sprint(first.Process.Pid)) {
		t.Errorf("a second server says %q, want the first one's process id %d", line, first.Process.Pid)
	}
	if err := second.Wait(); err == nil {
		t.Error("a second server runs")
	}
	testkit.Kill(first)
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the test wants a stale socket: %v", err)
	}
	if _, err := client.Dial(t.Context(), socket); !errors.Is(err, client.ErrNoServer) {
		t.Errorf("dial a dead server: %v", err)
	}
	testkit.Child(t, env...)
	c = dialWhenReady(t, socket)
	if s, err := c.Slice(t.Context(), "net"); err != nil || len(s.Spec.Nodes) != 2 {
		t.Errorf("after the crash: %v", err)
	}
}

func TestServerStopsWhenAsked(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "run", "pergola.sock")
	server, _ := testkit.Child(t, "PERGOLA_TEST_ROLE=server", "PERGOLA_TEST_DIR="+dir)
	c := dialWhenReady(t, socket)
	up(t, c, pair("net"))
	followed := make(chan error, 1)
	go func() { followed <- c.Progress(t.Context(), "net", func(api.Progress) bool { return false }) }()
	start := time.Now()
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if err := <-followed; err == nil {
		t.Error("a stream that was cut looks as if it had ended well")
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func ensure(t *testing.T, dir string, env ...string) (*client.Client, error) {
	t.Helper()
	for _, e := range append(env, "PERGOLA_TEST_ROLE=server", "PERGOLA_TEST_IDLE=1", "PERGOLA_TEST_DIR="+dir) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return client.EnsureServer(t.Context(), client.EnsureOptions{
		Socket: filepath.Join(dir, "run", "pergola.sock"), Command: []string{os.Args[0]},
		LogFile: filepath.Join(dir, "log", "server.log"),
	})
}

func TestServerStartedOnDemandEndsWithItsLastSlice(t *testing.T) {
	testkit.Root(t) // root alone starts servers
	dir := t.TempDir()
	for range 3 { // the next one starts while the last one ends
		c, err := ensure(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		up(t, c, pair("net"))
		again, err := ensure(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		if err := c.Delete(t.Context(), "net"); err != nil {
			t.Fatal(err)
		}
		settleGone(t, c, "net")
		c.Close()
	}
	await(t, "the run directory to go", func() bool {
		_, err := os.Stat(filepath.Join(dir, "run"))
		return errors.Is(err, os.ErrNotExist)
	})
}

func settleGone(t *testing.T, c *client.Client, name string) {
	t.Helper()
	err := c.Progress(t.Context(), name, func(p api.Progress) bool { return p.Gone })
	var p *api.Problem
	if known := errors.As(err, &p); err == nil || known && p.Status == http.StatusNotFound {
		return
	}
	// A server that ends when it is idle may do so before it says that the last slice is gone.
	testkit.Eventually(t, func() error {
		if _, again := c.Version(t.Context()); !errors.Is(again, client.ErrNoServer) {
			return err
		}
		return nil
	}, 5*time.Second, "the slice or the server to be gone")
}

func TestTheServerEndsWithItsLastSlice(t *testing.T) {
	testkit.Root(t) // root alone starts servers
	dir := t.TempDir()
	c, err := ensure(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	up(t, c, pair("net"))
	v, err := c.Version(t.Context())
	if err != nil || !v.ExitsWhenIdle {
		t.Fatalf("version %+v, %v", v, err)
	}
	if !alive(fmt.Sprint(v.PID)) {
		t.Fatal("the server ended though it has a slice")
	}
	if err := c.Delete(t.Context(), "net"); err != nil {
		t.Fatal(err)
	}
	settleGone(t, c, "net")
	c.Close() // a connection keeps the server
	await(t, "the server to end", func() bool { return !alive(fmt.Sprint(v.PID)) })
	if _, err := os.Stat(filepath.Join(dir, "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory is still there: %v", err)
	}
}

func TestManyClientsStartOneServer(t *testing.T) {
	testkit.Root(t) // root alone starts servers
	dir := t.TempDir()
	t.Setenv("PERGOLA_TEST_ROLE", "server")
	t.Setenv("PERGOLA_TEST_IDLE", "1")
	t.Setenv("PERGOLA_TEST_DIR", dir)
	const clients = 4
	pids := make(chan int, clients)
	for range clients {
		go func() {
			c, err := client.EnsureServer(t.Context(), client.EnsureOptions{
				Socket: filepath.Join(dir, "run", "pergola.sock"), Command: []string{os.Args[0]},
				LogFile: filepath.Join(dir, "log", "server.log"),
			})
			if err != nil {
				t.Error(err)
				pids <- 0
				return
			}
			v, err := c.Version(t.Context())
			if err != nil {
				t.Error(err)
				v = &api.Version{}
			}
			pids <- v.PID
		}()
	}
	one := <-pids
	for range clients - 1 {
		if pid := <-pids; pid != one {
			t.Errorf("servers %d and %d", one, pid)
		}
	}
	if err := unix.Kill(one, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "the server to end", func() bool { return !alive(fmt.Sprint(one)) })
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	testkit.Root(t) // root alone starts servers
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lib"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ensure(t, dir)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "lib")) {
		t.Errorf("error: %v", err)
	}
}
