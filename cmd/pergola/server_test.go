package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/control/events"
)

const labFile = `name: lab
nodes:
  a: {kind: router}
  b: {kind: router}
  sw: {kind: switch}
links:
- {ends: [a, b], rate: 10Mbit}
- [a, sw]
checks:
- {name: there, ping: [a, b]}
- {name: back, ping: [b, a]}
`

// inLab starts a world, and works in a directory with a topology file.
func inLab(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	t.Chdir(t.TempDir())
	edit(t, labFile)
	return w
}

func edit(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile("pergola.yaml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// want checks status, output and what is said beside it: all are regular expressions, "" is for none.
func (o outcome) want(t *testing.T, status int, out, errs string) outcome {
	t.Helper()
	if o.status != status || !matches(out, o.out) || !matches(errs, o.errs) {
		t.Fatalf("want status %d, output %q, errors %q; got %s", status, out, errs, o)
	}
	return o
}

func matches(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	return regexp.MustCompile(pattern).MatchString(text)
}

func TestStoryOfANetwork(t *testing.T) {
	w := inLab(t)
	pergola(t, "ls").want(t, 0, "", "no network is running")
	pergola(t, "up", "--dry-run").want(t, 0,
		`(?m)^\+ node a\n\+ node b\n\+ node sw\n\+ link a:eth1--b:eth1\n(.*\n)*^lab: 3 nodes and 2 links new$`,
		"")
	pergola(t, "ls").want(t, 0, "", "no network is running")
	w.set(func(h *host) { h.waiting = 1 })
	pergola(t, "up", "--wait").want(t, 0, "", "lab is up: 3 nodes and 2 links new")
	pergola(t, "ls").want(t, 0, `(?m)^lab +up +3/3 +2 `, "")
	pergola(t, "up").want(t, 0, "", "lab is up, and as the file says: nothing to change")

	// A changed file: only the difference.
	edit(t, strings.Replace(labFile, "rate: 10Mbit", "rate: 20Mbit", 1)+"\n")
	pergola(t, "up", "--dry-run").want(t, 0, `~ link a:eth1--b:eth1\n +\S*rate: 10Mbit -> 20Mbit`, "")
	pergola(t, "up").want(t, 0, "", "lab is up: 1 link changed")

	pergola(t, "inspect").want(t, 0,
		`(?s)lab: up, 3 of 3 nodes running, 2 links.*a +frr +running.*a:eth1--b:eth1 +up +20 Mbit/s`, "")
	pergola(t, "inspect", "a").want(t, 0, `(?s)INTERFACE.*eth1.*b:eth1`, "")
	pergola(t, "inspect", "lab", "b").want(t, 0, `INTERFACE`, "")
	pergola(t, "inspect", "lab/b").want(t, 0, `INTERFACE`, "")
	pergola(t, "inspect", "ws").want(t, 1, "", `did you mean lab/sw\?`)
	pergola(t, "version").want(t, 0, `server  v-test`, "")

	pergola(t, "down").want(t, 0, "", "lab is down")
	pergola(t, "ls").want(t, 0, "", "no network is running")
	pergola(t, "down").want(t, 1, "", `network "lab" is not running`)
}

func TestSeveralNetworks(t *testing.T) {
	inLab(t)
	pergola(t, "up", "--name", "one").want(t, 0, "", "one is up")
	pergola(t, "up", "--name", "two").want(t, 0, "", "two is up")
	pergola(t, "inspect").want(t, 2, "", "2 networks are running: say which one is meant(?s).*one, two")
	pergola(t, "inspect", "tow").want(t, 1, "",
		`"tow" is neither a network that runs nor a node of one\n +did you mean two\?`)
	pergola(t, "inspect", "a").want(t, 1, "", `did you mean one/a or two/a\?`)
	pergola(t, "exec", "one/a", "--", "hello").want(t, 0, "^hello\n$", "")
	pergola(t, "exec", "-s", "two", "a", "--", "hello").want(t, 0, "^hello\n$", "")
	pergola(t, "exec", "a", "--", "hello").want(t, 125, "", "2 networks are running")
	// The network of the file here is the obvious one.
	pergola(t, "up").want(t, 0, "", "lab is up")
	pergola(t, "inspect").want(t, 0, "^lab: up", "")
	pergola(t, "down", "--all").want(t, 0, "", "lab is down\none is down\ntwo is down")
}

func TestDownOfAFileIsNotDownOfAnotherNetwork(t *testing.T) {
	inLab(t)
	pergola(t, "up", "--name", "other").want(t, 0, "", "other is up")
	pergola(t, "down").want(t, 1, "", `network "lab" is not running`)
	pergola(t, "down", "other").want(t, 0, "", "other is down")
	pergola(t, "up").want(t, 0, "", "lab is up")
	pergola(t, "down", "pergola.yaml").want(t, 0, "", "lab is down")
}

func TestFaultsThatTheServerFindsHaveTheirPlaceInTheFile(t *testing.T) {
	w := inLab(t)
	w.set(func(h *host) {
		h.lacks = errors.New("delay needs the kernel module sch_netem, which this machine lacks")
	})
	pergola(t, "up").want(t, 1, "", "error: .*sch_netem")
	pergola(t, "ls").want(t, 0, "", "no network is running")
}

func TestExec(t *testing.T) {
	w := inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "exec", "a", "--", "false").want(t, 3, "", "^it is false\n$")
	pergola(t, "exec", "a", "ls", "-l", "--all").want(t, 0, "^ls -l --all\n$", "")
	pergola(t, "exec", "-it", "a", "ls", "-l").want(t, 0, "^ls -l\n$", "")
	pergola(t, "exec", "a", "-s", "lab", "--", "ls").want(t, 0, "^ls\n$", "")
	pergolaWith(t.Context(), t, "typed", "exec", "a", "cat").want(t, 0, "^typed$", "")
	pergolaWith(t.Context(), t, "typed", "exec", "-n", "a", "cat").want(t, 0, "", "")
	pergola(t, "exec", "--all", "--", "ip", "route").want(t, 0, "^a  ip route\nb  ip route\n$", "")
	pergola(t, "exec", "[ab]", "--", "false").want(t, 3, "", "(?m)^b  exit status 3$")
	pergola(t, "exec", "--all", "--json", "--", "false").want(t, 3, `"node": "b",\n +"status": 3`, "")
	pergola(t, "exec", "sw", "ls").want(t, 125, "", "sw is a switch: nothing can run in it")
	pergola(t, "exec", "aa", "ls").want(t, 125, "", `network lab has no node "aa"\n +did you mean a\?`)
	pergola(t, "exec", "--all", "a", "--", "ls").want(t, 2, "", "--all runs in every node")

	w.set(func(h *host) { h.commands = nil })
	pergola(t, "shell", "a").want(t, 0, "bash", "")
	pergola(t, "shell", "b", "--vtysh").want(t, 0, "vtysh", "")
	if got := strings.Join(w.commands, "\n"); got != "a: /bin/sh -c "+bestShell+"\nb: vtysh" {
		t.Errorf("commands are\n%s", got)
	}
}

func TestNodeOfAnotherSliceIsSuggested(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "lab is up")
	edit(t, "name: west\nnodes: [denver, seattle]\nlinks:\n- [denver, seattle]\n")
	pergola(t, "up").want(t, 0, "", "west is up")
	pergola(t, "exec", "dnever", "ls").want(t, 125, "", "did you mean denver")
	edit(t, labFile) // of the two, the directory describes lab
	pergola(t, "exec", "dnever", "ls").want(t, 125, "",
		`network lab has no node "dnever"\n.*did you mean west/denver\?`)
	if err := os.Remove("pergola.yaml"); err != nil {
		t.Fatal(err)
	}
	pergola(t, "exec", "dnever", "ls").want(t, 125, "", `2 networks are running.*\n.*did you mean west/denver\?`)
}

func TestShellOfTheOtherRoutingSuite(t *testing.T) {
	inLab(t)
	edit(t, "name: lab\nnodes:\n  a: {kind: router, daemon: bird, routing: ospf}\n  b: {kind: router, routing: "+
		"ospf}\nlinks:\n- [a, b]\n")
	pergola(t, "up").want(t, 0, "", "lab is up")
	pergola(t, "shell", "a", "--birdc").want(t, 0, "birdc", "")
	pergola(t, "shell", "a", "--vtysh").want(t, 125, "",
		"node a runs bird, which has no vtysh\n.*`pergola shell a --birdc`")
	pergola(t, "shell", "b", "--birdc").want(t, 125, "",
		"node b runs frr, which has no birdc\n.*`pergola shell b --vtysh`")
}

func TestNodesAndLinksByHand(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "node", "stop", "a").want(t, 0, "", "lab/a stopped")
	pergola(t, "node", "pause", "b").want(t, 0, "", "lab/b paused")
	pergola(t, "node", "ls").want(t, 0, `(?m)^a .*stopped(.*\n)+^b .*paused`, "")
	pergola(t, "node", "start", "a").want(t, 0, "", "lab/a started")
	pergola(t, "node", "start", "b").want(t, 1, "", "b is paused: resume it")
	pergola(t, "node", "resume", "b").want(t, 0, "", "lab/b resumed")
	pergola(t, "restart", "a").want(t, 0, "", "lab/a restarted")
	pergola(t, "node", "stop", "c").want(t, 1, "", `no node "c"`)

	pergola(t, "link", "set", "a:eth1", "--delay", "0", "--rate", "1G").want(t, 0, "", "lab/a:eth1: changed")
	pergola(t, "link", "down", "a:eth2").want(t, 0, "", "lab/a:eth2: down")
	pergola(t, "link", "ls").want(t, 0, `from a:eth1: 1 Gbit/s\*; from b:eth1: 10 Mbit/s`, "")
	pergola(t, "link", "ls").want(t, 0, `(?m)^a:eth2--sw:eth1 +cut`, "")
	pergola(t, "link", "ls", "--json").want(t, 0, `"cut": true`, "")
	pergola(t, "node", "pause", "b").want(t, 0, "", "lab/b paused")
	pergola(t, "up").want(t, 0, "", "as the file says but for what was changed by hand: nothing to change\n"+
		"changed by hand: node b is paused: `pergola node resume b`\n"+
		"changed by hand: link a:eth2--sw:eth1 is down: `pergola link up a:eth2--sw:eth1`\n"+
		"changed by hand: frames that leave a:eth1 are not treated as the file says: "+
		"`pergola link reset a:eth1`\n$")
	pergola(t, "node", "resume", "b").want(t, 0, "", "lab/b resumed")
	pergola(t, "link", "up", "a:eth2--sw:eth1").want(t, 0, "", ": up")
	pergola(t, "link", "reset", "--all").want(t, 0, "", "a:eth1--b:eth1: as the file says")
	pergola(t, "link", "ls").want(t, 0, `up +10 Mbit/s`, "")
	pergola(t, "link", "set", "b:eth9", "--loss", "1").want(t, 1, "", "did you mean b:eth1")
}

func TestWaitAndCheckTellTheOutcomeByTheirStatus(t *testing.T) {
	w := inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "wait").want(t, 0, "", "lab has converged: 2 routers")
	pergola(t, "wait", "--json").want(t, 0, `"converged": true`, "lab has")
	w.set(func(h *host) { h.waiting = 1 << 30 })
	pergola(t, "wait", "--timeout", "300ms").want(t, 1, "",
		"not converged in time: 1 of 2 destinations reached\n +b: no route to a")
	w.set(func(h *host) { h.waiting = 0 })
	pergola(t, "wait", "--timeout", "1s", "lob").want(t, 2, "", "did you mean lab")

	pergola(t, "check").want(t, 0, `(?m)^there +- +ok +90 us\s(.*\n)*^lab: all 2 checks hold`, "")
	pergola(t, "check", "--all-pairs", "--junit", "x.xml").want(t, 1,
		`(?m)^back +- +FAILED .* no answer$(.*\n)*^lab: 1 of 2 checks failed`, "")
	if x, err := os.ReadFile("x.xml"); err != nil || !strings.Contains(string(x), `failures="1"`) {
		t.Errorf("%s, %v", x, err)
	}
	pergola(t, "check", "--json").want(t, 0, `"ok": true`, "")
	pergola(t, "check", "--only", "thare").want(t, 2, "", `thare`)
	pergola(t, "check", "--junit", "no/such/dir").want(t, 2, "", "write JUnit results")
	pergola(t, "check", "lob").want(t, 2, "", "did you mean lab")
}

func TestLogsCaptureAndEvents(t *testing.T) {
	w := inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "logs", "a", "--tail", "3").want(t, 0, `^a says hello \(tail 3\)\n$`, "")
	pergola(t, "capture", "a:eth1", "-c", "3", "-w", "x.pcap").want(t, 0, "", "3 frames written to x.pcap")
	pergola(t, "capture", "a:eth1", "-c", "2", "-w", "-").want(t, 0, `^\x4d\x3c\xb2\xa1|.`, "")
	pergola(t, "capture", "a:eth9").want(t, 1, "", "did you mean a:eth1")
	pergola(t, "capture", "a").want(t, 2, "", "which interface of a")

	w.bus.Publish(events.Event{Slice: "lab", Node: "a", Kind: events.NodeChanged, Message: "it died"})
	pergola(t, "events", "lab").want(t, 0, `node-changed +lab/a +it died`, "")
	o := pergola(t, "events", "--json").want(t, 0, "it died", "")
	for line := range strings.Lines(o.out) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is not JSON", line)
		}
	}
}

func TestCtrlCDuringUpSaysThatTheServerGoesOn(t *testing.T) {
	w := inLab(t)
	w.set(func(h *host) { h.hold = true })
	ctx, interrupt := context.WithCancel(t.Context())
	w.when("/progress", func(*http.Request) { interrupt() })
	pergolaWith(ctx, t, "", "up").want(t, 130, "",
		"(?s)error: interrupted.*goes on starting lab.*`pergola down lab`")
	pergola(t, "ls").want(t, 0, "coming up", "")

	ctx, interrupt = context.WithCancel(t.Context())
	w.when("/progress", func(*http.Request) { interrupt() })
	pergolaWith(ctx, t, "", "down").want(t, 130, "", "goes on taking lab down")
}

// A request that was sent may be carried out, whether its answer is awaited or not.
func TestCtrlCWhileATopologyIsSentPromisesNothing(t *testing.T) {
	w := inLab(t)
	ctx, interrupt := context.WithCancel(t.Context())
	w.when("/slices/lab", func(*http.Request) { interrupt() })
	pergolaWith(ctx, t, "", "up").want(t, 130, "", "`pergola inspect lab` shows whether the server has taken it")
}

func TestCtrlCEndsCommandsThatFollow(t *testing.T) {
	w := inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	for _, c := range []struct {
		path string
		args []string
	}{
		{"/logs", []string{"logs", "a", "-f"}},
		{"/events", []string{"events", "-f"}},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		w.when(c.path, func(*http.Request) { interrupt() })
		o := pergolaWith(ctx, t, "", c.args...)
		if o.status != 0 || o.errs != "" {
			t.Errorf("%v: %s", c.args, o)
		}
	}
}

func TestJSONIsStable(t *testing.T) {
	inLab(t)
	pergola(t, "ls", "--json").want(t, 0, `^\[\]\n$`, "")
	pergola(t, "up", "--dry-run", "--json").want(t, 0, `"dry_run": true`, "")
	pergola(t, "up", "--json").want(t, 0, `(?s)"plan": \{.*"status": \{`, "")
	for _, args := range [][]string{
		{"ls"}, {"inspect"}, {"inspect", "a"}, {"node", "ls"}, {"link", "ls"}, {"wait"}, {"check"}, {"version"}, {"graph"},
		{"node", "restart", "a"}, {"link", "down", "a:eth1"}, {"validate"}, {"down"},
	} {
		o := pergola(t, append(args, "--json", "-q")...)
		if o.status != 0 || !json.Valid([]byte(o.out)) || o.errs != "" {
			t.Errorf("%v: %s", args, o)
		}
	}
}

// TestJSONIsAsDocumented runs every command of the table in docs/json.md and compares keys.
func TestJSONIsAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?m)^\\| `(.+)` \\| .* \\| `(.+)` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(lines) < 10 {
		t.Fatalf("the table has %d lines", len(lines))
	}
	t.Run("one machine", func(t *testing.T) {
		inLab(t)
		compareKeys(t, lines)
	})
	t.Run("a cluster", func(t *testing.T) {
		inCluster(t) // of which one host alone answers
		edit(t, strings.ReplaceAll(labFile, "{kind: router}", "{kind: router, host: h1}"))
		pergola(t, "token", "create", "-q").want(t, 0, "--token", "")
		compareKeys(t, lines)
	})
}

// ofClusters are commands that have nothing to show on a machine that is in none.
var ofClusters = regexp.MustCompile("^(host|token) ")

func compareKeys(t *testing.T, lines [][]string) {
	t.Helper()
	pergola(t, "up").want(t, 0, "", "up")
	lonely := pergola(t, "host", "ls", "-q", "--json").out == "[]\n"
	for _, line := range lines {
		args := strings.Fields(line[1])
		args = append(args[:1:1], append([]string{"--json", "-q"}, args[1:]...)...)
		var o outcome
		switch {
		case lonely && ofClusters.MatchString(line[1]):
			continue
		case args[0] == "bench": // takes minutes and root; what it writes is this value as it is
			o.out = jsonOf(t, path.Result{})
		case args[0] == "dev": // needs root; so does this
			o.out = jsonOf(t, []devMachine{{}})
		default:
			o = pergola(t, args...)
		}
		var have map[string]any
		if have = firstObject(o.out); have == nil {
			t.Errorf("%s: %s", line[1], o)
			continue
		}
		known := map[string]bool{}
		for _, key := range strings.Fields(line[2]) {
			name, optional := strings.CutSuffix(key, "?")
			known[name] = true
			if _, ok := have[name]; !ok && !optional {
				t.Errorf("%s has no %s: %s", line[1], name, o)
			}
		}
		for key := range have {
			if !known[key] {
				t.Errorf("%s has %s, which docs/json.md does not name", line[1], key)
			}
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// firstObject gives the object that a document is, or the first in its list, or the first value of a map by name.
func firstObject(text string) map[string]any {
	var list []map[string]any
	if json.Unmarshal([]byte(text), &list) == nil && len(list) > 0 {
		return list[0]
	}
	var byName map[string]map[string]any
	if json.Unmarshal([]byte(text), &byName) == nil && byName["a"] != nil {
		return byName["a"]
	}
	var object map[string]any
	_ = json.Unmarshal([]byte(text), &object)
	return object
}

func TestCompletionKnowsNames(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	for line, want := range map[string]string{
		"inspect ": "lab", "shell ": "b", "capture ": "a:eth1", "link down ": "a:eth1--b:eth1",
		"exec -s ": "lab", "exec -N ": "lab", "logs a --network ": "lab",
	} {
		o := pergola(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if !slices.Contains(strings.Split(o.out, "\n"), want) {
			t.Errorf("%q does not complete to %s: %s", line, want, o)
		}
	}
}

// A server that dies under a command takes nothing along: the command says so, where the log is, and how to go on.
func TestCommandsSayThatTheServerEnded(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		at     string // the request at which the server ends
		args   []string
	}{
		"up":    {1, "/progress", []string{"up"}},
		"wait":  {2, "/convergence", []string{"wait", "lab"}},
		"check": {2, "/check", []string{"check", "lab"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := inLab(t)
			if name != "up" {
				pergola(t, "up").want(t, 0, "", "lab is up")
			}
			w.when(c.at, func(*http.Request) { w.server.Close() })
			pergola(t, c.args...).want(t, c.status, "", "(?s)the server ended.*nodes run on.*"+
				"`pergola up`.*its log.*pergola server --listen none --socket "+
				regexp.QuoteMeta(w.socket))
		})
	}
}
