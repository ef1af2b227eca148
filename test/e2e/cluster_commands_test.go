package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/lab/testbed"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// commands are the commands of stories of clusters, beside testscript's own:
//
//	eventually DURATION CMD ARG... runs CMD until it succeeds, at most for DURATION
//	alive N                        waits until the cluster has N hosts that are alive, seen from every machine
//	                               whose Pergola runs
//	leader VAR                     sets the environment variable to the server that leads the others
//	process VAR HOST SLICE NODE    sets the variable to the name of a namespace of the node's process, which
//	                               no other process has
//	copies watch SLICE NODE        begins to count on how many machines the node has processes; may be called
//	                               for several nodes
//	copies now N                   there are N of each
//	copies none DURATION           waits until there is none of each, and then there is none for so long
//	copies most N                  ends that: of each there were never more than N at once, and once there were N
func (c *cluster) commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"eventually": cmdEventually,
		"alive":      c.cmdAlive,
		"leader":     c.cmdLeader,
		"process":    c.cmdProcess,
		"copies":     c.cmdCopies,
	}
}

// get asks the API of a machine.
func get(m *testbed.Machine, path string, into any) error {
	web := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.Socket())
		},
	}}
	resp, err := web.Get("http://pergola" + path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", path, m.Name, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// running gives the machines whose Pergola runs.
func (c *cluster) running() ([]*testbed.Machine, error) {
	b, err := testbed.Open(c.dir)
	if err != nil {
		return nil, err
	}
	var all []*testbed.Machine
	for _, m := range b.Machines() {
		cut, err := m.IsCut()
		if err != nil {
			return nil, err
		}
		if s, err := m.Status(); err == nil && s.Running && !cut {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("nothing runs")
	}
	return all, nil
}

func (c *cluster) cmdAlive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: alive N")
	}
	ts.Check(testkit.Poll(func() error {
		machines, err := c.running()
		if err != nil {
			return err
		}
		for _, m := range machines {
			var hosts []struct {
				Name  string
				Alive bool
			}
			if err := get(m, "/v1/hosts", &hosts); err != nil {
				return err
			}
			var names []string
			for _, h := range hosts {
				if h.Alive {
					names = append(names, h.Name)
				}
			}
			if fmt.Sprint(len(names)) != args[0] {
				return fmt.Errorf("%s sees %s alive, wanted are %s", m.Name,
					strings.Join(names, ", "), args[0])
			}
		}
		return nil
	}, 60*time.Second))
}

func (c *cluster) cmdLeader(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: leader VAR")
	}
	ts.Check(testkit.Poll(func() error {
		machines, err := c.running()
		if err != nil {
			return err
		}
		var is struct {
			Servers []struct {
				Name   string
				Leader bool
			}
		}
		if err := get(machines[len(machines)-1], "/v1/cluster", &is); err != nil {
			return err
		}
		for _, s := range is.Servers {
			if s.Leader {
				ts.Setenv(args[0], s.Name)
				return nil
			}
		}
		return fmt.Errorf("no server leads: %+v", is.Servers)
	}, 30*time.Second))
}

func (c *cluster) cmdProcess(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: process VAR HOST SLICE NODE")
	}
	b, err := testbed.Open(c.dir)
	ts.Check(err)
	m, ok := b.Machine(args[1])
	if !ok {
		ts.Fatalf("there is no machine %s", args[1])
	}
	ts.Check(testkit.Poll(func() error {
		var is struct {
			Status struct{ Nodes map[string]slice.NodeStatus }
		}
		if err := get(m, "/v1/slices/"+args[2], &is); err != nil {
			return err
		}
		pid := is.Status.Nodes[args[3]].PID
		if pid == 0 {
			return fmt.Errorf("%s has no process: %+v", args[3], is.Status.Nodes[args[3]])
		}
		first, err := m.PID()
		if err != nil {
			return err
		}
		// The machine's own /proc, whose numbers are the machine's.
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/root/proc/%d/ns/net", first, pid))
		if err != nil {
			return err
		}
		ts.Setenv(args[0], name)
		return nil
	}, 30*time.Second))
}

func (c *cluster) cmdCopies(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case !neg && len(args) == 3 && args[0] == "watch":
		b, err := testbed.Open(c.dir)
		ts.Check(err)
		var is struct{ Spec struct{ ID uint16 } }
		ts.Check(get(b.Machines()[0], "/v1/slices/"+args[1], &is))
		w, err := watchCopies(b, is.Spec.ID, args[2])
		ts.Check(err)
		c.copies = append(c.copies, w)
	case !neg && len(args) == 2 && args[0] == "most" && len(c.copies) > 0:
		for _, w := range c.copies {
			if most := w.end(); fmt.Sprint(most) != args[1] {
				ts.Fatalf("there were processes of %s on %d machines at once, wanted are %s", w.node,
					most, args[1])
			}
		}
		c.copies = nil
	case !neg && len(args) == 2 && args[0] == "now" && len(c.copies) > 0:
		for _, w := range c.copies {
			if now := w.count(); fmt.Sprint(now) != args[1] {
				ts.Fatalf("there are processes of %s on %d machines, wanted are %s", w.node,
					now, args[1])
			}
		}
	case !neg && len(args) == 2 && args[0] == "none" && len(c.copies) > 0:
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		for _, w := range c.copies {
			ts.Check(w.none(d))
		}
	default:
		ts.Fatalf("usage: copies watch SLICE NODE | copies now N | copies none DURATION | copies most N")
	}
}

// copies counts on how many machines a node lives.
type copies struct {
	node     string
	patterns []string // of the files that list its processes
	quit     chan struct{}
	once     sync.Once
	most     chan int
}

// watchCopies looks into the node's cgroups on all machines: processes there are counted whatever servers report.
func watchCopies(b *testbed.Testbed, id uint16, node string) (*copies, error) {
	w := &copies{node: node, quit: make(chan struct{}), most: make(chan int, 1)}
	for _, m := range b.Machines() {
		groups, err := m.Groups()
		if err != nil {
			return nil, err
		}
		for _, g := range groups { // of all hierarchies, slivers are in some
			w.patterns = append(w.patterns, filepath.Join(g, "pergola-*", fmt.Sprint(id), node,
				"cgroup.procs"))
		}
	}
	go func() {
		most := 0
		for {
			most = max(most, w.count())
			select {
			case <-w.quit:
				w.most <- most
				return
			case <-time.After(countInterval):
			}
		}
	}()
	return w, nil
}

// countInterval is between two counts.
const countInterval = 20 * time.Millisecond

// count gives the number of machines with processes of the node now.
func (w *copies) count() int {
	machines := map[string]bool{}
	for _, p := range w.patterns {
		for _, file := range glob(p) {
			if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
				machines[filepath.Base(strings.Split(p, "/pergola-*/")[0])] = true
			}
		}
	}
	return len(machines)
}

// none waits until no machine has any, and fails if one has some within a while from then.
func (w *copies) none(while time.Duration) error {
	err := testkit.Poll(func() error {
		if n := w.count(); n > 0 {
			return fmt.Errorf("there are processes of %s on %d machines", w.node, n)
		}
		return nil
	}, 30*time.Second)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < while; time.Sleep(countInterval) {
		if n := w.count(); n > 0 {
			return fmt.Errorf("%s has processes again after %v", w.node,
				time.Since(began).Round(time.Second))
		}
	}
	return nil
}

func glob(pattern string) []string {
	all, _ := filepath.Glob(pattern) // the pattern is well formed
	return all
}

// end gives the highest count; later calls do nothing.
func (w *copies) end() (most int) {
	w.once.Do(func() {
		close(w.quit)
		most = <-w.most
	})
	return most
}
