package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// commands are the commands of stories, beside testscript's own:
//
//	server start|stop|kill         the story's server; kill is kill -9
//	eventually DURATION CMD ARG... runs CMD until it succeeds, at most for DURATION
//	pids SLICE FILE                writes the first process of every node into FILE, one a line
//	killnode SLICE NODE            kills (-9) a node's first process, and waits until the server has seen that
//	killpid FILE NODE              the same, with the process taken from a file that pids wrote
//	walked SLICE NODE:IFACE N      N frames or more were walked into a router by the interface since the last call
//	carried SLICE NODE:IFACE [N B] since the last call, N frames of B bytes, and few others, came in by a router's
//	                               interface, as many went out, and nearly all were walked
//
// rtt FILE MIN MAX the average round trip that ping wrote into FILE (or stdout) is between MIN and MAX
func commands(s *server) map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"server":     s.cmdServer,
		"eventually": cmdEventually,
		"pids":       s.cmdPIDs,
		"killnode":   s.cmdKillNode,
		"killpid":    cmdKillPID,
		"rtt":        cmdRTT,
		"walked":     s.cmdWalked,
		"carried":    s.cmdCarried,
	}
}

func (s *server) cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 1 && args[0] != "start" {
		ts.Fatalf("usage: server start [FLAG...]|stop|kill")
	}
	var err error
	switch args[0] {
	case "start":
		err = s.start(args[1:]...)
	case "stop":
		err = s.stop(syscall.SIGTERM)
	case "kill":
		err = s.stop(syscall.SIGKILL)
	default:
		err = fmt.Errorf("no such word: %s", args[0])
	}
	ts.Check(err)
}

func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: eventually DURATION CMD ARG...")
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	err = testkit.Poll(func() error {
		err := ts.Exec(args[1], args[2:]...)
		switch {
		case !neg:
			return err
		case err == nil:
			return errors.New("it succeeds")
		}
		return nil
	}, limit)
	if err != nil {
		ts.Fatalf("not within %v: %s (%v)", limit, strings.Join(args[1:], " "), err)
	}
}

// nodes asks for the status of a slice's nodes.
func (s *server) nodes(name string) (map[string]slice.NodeStatus, error) {
	out, err := s.command("node", "ls", name, "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("list the nodes of %s: %w", name, err)
	}
	var nodes map[string]slice.NodeStatus
	if err := json.Unmarshal(out, &nodes); err != nil {
		return nil, fmt.Errorf("parse the nodes of %s: %w", name, err)
	}
	return nodes, nil
}

func (s *server) cmdPIDs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pids SLICE FILE")
	}
	text, err := s.pids(args[0])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// pids lists the nodes that run, and their processes.
func (s *server) pids(slice string) (string, error) {
	nodes, err := s.nodes(slice)
	var lines []string
	for name, n := range nodes {
		if n.PID != 0 {
			lines = append(lines, fmt.Sprintf("%s %d\n", name, n.PID))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), err
}

func (s *server) cmdKillNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killnode SLICE NODE")
	}
	nodes, err := s.nodes(args[0])
	ts.Check(err)
	pid := nodes[args[1]].PID
	if pid <= 1 {
		ts.Fatalf("%s has no process: %+v", args[1], nodes[args[1]])
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	// Until then, what the story asks about the node would be told of the dead one.
	ts.Check(testkit.Poll(func() error {
		nodes, err := s.nodes(args[0])
		if err == nil && nodes[args[1]].PID == pid {
			err = fmt.Errorf("the server still takes %s for alive: %+v", args[1], nodes[args[1]])
		}
		return err
	}, 20*time.Second))
}

func cmdKillPID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killpid FILE NODE")
	}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var name string
		var pid int
		if _, err := fmt.Sscan(line, &name, &pid); err == nil && name == args[1] && pid > 1 {
			ts.Check(syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	ts.Fatalf("%s has no %s", args[0], args[1])
}

var pingSummary = regexp.MustCompile(`= ([0-9.]+)/`)

func cmdRTT(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: rtt FILE MIN MAX")
	}
	found := pingSummary.FindStringSubmatch(ts.ReadFile(args[0]))
	if found == nil {
		ts.Fatalf("%s has no summary of ping", args[0])
	}
	rtt, err := time.ParseDuration(found[1] + "ms")
	ts.Check(err)
	least, err := time.ParseDuration(args[1])
	ts.Check(err)
	most, err := time.ParseDuration(args[2])
	ts.Check(err)
	if rtt < least || rtt > most {
		ts.Fatalf("the least round trip is %v, wanted %v to %v", rtt, least, most)
	}
}
