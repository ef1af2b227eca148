package testkit

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakPatience is how long things may take to go after the test: the kernel dismantles network namespaces, BPF programs
// and cgroups in the background.
const leakPatience = 10 * time.Second

// LeakCheck notes what exists now and fails the test if, when it ends, something new is left that belongs to the test:
// its own open files and child processes, and whatever process, network namespace, mount, interface, cgroup, BPF program,
// map or link carries one of the marks in its name, path, command line, environment, mount table or cgroup. A mark is a
// state directory or a name prefix that nobody else uses.
//
// The machine may be in use by others, so what carries no mark is not looked at; Main does that for CI.
//
// Call it right after TempState, before whatever cleans up is registered: cleanups run in reverse order. It must not be
// used by tests that run in parallel with others of their package.
func LeakCheck(t testing.TB, marks ...string) {
	t.Helper()
	before, err := observe()
	if err != nil {
		t.Fatalf("note what is there before the test: %v", err)
	}
	mine := func(th thing) bool {
		return th.own || slices.ContainsFunc(marks, th.carries)
	}
	t.Cleanup(func() {
		if left := awaitGone(before, mine); len(left) > 0 {
			t.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
		}
	})
}

// Main runs a package's tests and, in CI, where packages run one after the other and nothing else runs beside them, fails if
// anything at all is left on the machine that was not there before, whoever's it is. Use it as
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
func Main(m *testing.M) {
	if !inCI() || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	before, err := observe()
	if err != nil {
		fmt.Fprintf(os.Stderr, "note what is there before the tests: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	anything := func(th thing) bool { return !th.transient() }
	if left := awaitGone(before, anything); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind by the package's tests:\n\t%s\n", strings.Join(left, "\n\t"))
		code = max(code, 1)
	}
	os.Exit(code)
}

// awaitGone polls until nothing new that is mine is left, and otherwise says what.
func awaitGone(before map[string]thing, mine func(thing) bool) []string {
	var left []string
	err := Poll(func() error {
		now, err := observe()
		if err != nil {
			left = []string{err.Error()}
			return err
		}
		left = nil
		for key, th := range now {
			if _, was := before[key]; !was && mine(th) {
				left = append(left, th.String())
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d things left", len(left))
		}
		return nil
	}, leakPatience)
	if err == nil {
		return nil
	}
	slices.Sort(left)
	return left
}

// thing is something that a test can leave behind.
type thing struct {
	kind   string
	name   string   // what a person needs to find it
	text   []string // where marks are looked for
	own    bool     // belongs to this very process without any mark
	others bool     // belongs to a process that was there before, and is not this one
}

func (th thing) String() string { return th.kind + " " + th.name }

func (th thing) carries(mark string) bool {
	return slices.ContainsFunc(th.text, func(s string) bool { return strings.Contains(s, mark) })
}

// transient reports whether the machine itself makes and drops such things all the time: kernel threads, and what others
// run.
func (th thing) transient() bool { return th.kind == "kernel thread" || th.others }

// observe looks at everything that can leak; keys are unique over time as far as the kernel allows.
func observe() (map[string]thing, error) {
	found := map[string]thing{}
	add := func(key string, th thing) {
		key = th.kind + " " + key
		if old, ok := found[key]; ok { // a namespace seen through several holders
			th.text = append(old.text, th.text...)
			th.own = th.own || old.own
			th.name = old.name
		}
		found[key] = th
	}
	for _, look := range []func(func(string, thing)) error{lookProcesses, lookMounts, lookInterfaces, lookCgroups, lookBPF, lookFiles} {
		if err := look(add); err != nil {
			return nil, err
		}
	}
	return found, nil
}
