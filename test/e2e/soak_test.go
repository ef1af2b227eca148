package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// TestSoak does to a network, in random order, what users and crashes do, and looks after every few steps whether it
// comes to rest as it should. PERGOLA_SOAK says for how long (make soak); the default only shows that it works. A seed
// in PERGOLA_SEED repeats a run, as far as time allows.
func TestSoak(t *testing.T) {
	testkit.Root(t)
	long, seed := soakTime(t)
	t.Logf("seed %d", seed)
	w := &wear{server: newServer(t, pergola(t)), t: t, random: rand.New(rand.NewPCG(seed, 0))}
	w.file = filepath.Join(w.state, "ring.yaml")
	if err := os.WriteFile(w.file, []byte(ring), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	w.mustSucceed(t, "up", w.file)
	for end := time.Now().Add(long); time.Now().Before(end); {
		for range 1 + w.random.IntN(4) {
			w.step()
		}
		w.settle()
	}
	t.Logf("%d steps", w.steps)
	w.mustSucceed(t, "down", "ring")
}

// soakTime reads how long to go on, and the seed.
func soakTime(t *testing.T) (long time.Duration, seed uint64) {
	t.Helper()
	long = 15 * time.Second
	if text := os.Getenv("PERGOLA_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("PERGOLA_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	return long, seed
}

// wear is one soak.
type wear struct {
	*server
	t      *testing.T
	random *rand.Rand
	file   string
	steps  int
}

// step does one thing that a network must survive.
func (w *wear) step() {
	w.steps++
	node := []string{"r1", "r2", "r3", "h1", "h2"}[w.random.IntN(5)]
	steps := []func(){
		func() { w.mustSucceed(w.t, "node", "stop", node) },
		func() { w.mustSucceed(w.t, "node", "start", node) },
		func() { w.mustSucceed(w.t, "restart", node) },
		func() { w.mustSucceed(w.t, "link", "down", node+":eth1") },
		func() { w.mustSucceed(w.t, "link", "up", node+":eth1") },
		func() {
			w.mustSucceed(w.t, "link", "set", node+":eth1", "--rate",
				fmt.Sprintf("%dMbit", 1+w.random.IntN(100)))
		},
		func() { w.mustSucceed(w.t, "link", "reset", "--all") },
		func() { w.killNode(node) },
		func() { w.killDuring(w.t, time.Duration(w.random.IntN(200))*time.Millisecond, "restart", node) },
		func() {
			w.killDuring(w.t, time.Duration(w.random.IntN(300))*time.Millisecond, "down", "ring")
			w.mustSucceed(w.t, "up", w.file)
		},
	}
	steps[w.random.IntN(len(steps))]()
}

func (w *wear) killNode(node string) {
	nodes, err := w.nodes("ring")
	if err != nil {
		w.t.Fatal(err)
	}
	if pid := nodes[node].PID; pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone by itself
	}
}

// settle asks for everything again and looks whether it comes.
func (w *wear) settle() {
	w.mustSucceed(w.t, "up", w.file)
	w.mustSucceed(w.t, "node", "start", "r1", "r2", "r3", "h1", "h2")
	for _, link := range []string{"r1:eth1", "r2:eth1", "r3:eth1", "h1:eth1", "h2:eth1"} {
		w.mustSucceed(w.t, "link", "up", link)
	}
	testkit.Eventually(w.t, func() error {
		for _, path := range [][2]string{{"h1", "h2"}, {"h2", "r1"}, {"r1", "r2"}, {"r2", "r3"}, {"r3", "r1"}} {
			if out, err := w.command("exec", "-s", "ring", path[0], "--", "ping", "-c1", "-W1",
				path[1]).CombinedOutput(); err != nil {
				return fmt.Errorf("%s does not reach %s: %w\n%s", path[0], path[1], err, out)
			}
		}
		return nil
	}, 30*time.Second, "the network to be as the file says")
}
