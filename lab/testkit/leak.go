package testkit

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakPatience is the time that things may take to go after the test: the kernel dismantles network namespaces, BPF
// programs and cgroups in the background.
const leakPatience = time.Minute

// LeakCheck notes what exists now. When the test ends, it fails the test if something new is left that belongs to it:
// its own open files and child processes, and every process, network namespace, mount, interface, cgroup and pinned BPF
// object that carries one of the marks in its name, path, command line, environment, mount table or cgroup. A mark is a
// state directory or a name prefix that no other test uses.
//
// Others may use the machine, so what carries no mark is not looked at; Main and Guard do that in CI.
//
// Call it right after TempState, before any cleanup is registered: cleanups run in reverse order. Tests that run in
// parallel with others of their package must not use it.
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

// Main runs a package's tests and, in CI, fails if anything is left that was not there before, whatever its owner. Use
// it as
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// Where other packages' tests run at the same time (environment variable PERGOLA_TEST_SHARED), their cgroups and BPF
// objects are seen here too, so these two kinds are left to the Guard around all of them.
func Main(m *testing.M) {
	os.Exit(guard(m.Run, func(th thing) bool { return !th.shared || os.Getenv("PERGOLA_TEST_SHARED") == "" }))
}

// Guard calls run, which gives an exit status and, in CI, replaces a status of 0 by 1 if anything is left on the
// machine that was not there before. Nothing else may make things on the machine meanwhile, except descendants of older
// processes.
func Guard(run func() int) int { return guard(run, func(thing) bool { return true }) }

func guard(run func() int, look func(thing) bool) int {
	if !inCI() || os.Geteuid() != 0 {
		return run()
	}
	before, err := observe()
	if err != nil {
		fmt.Fprintf(os.Stderr, "note what is there before the tests: %v\n", err)
		return 1
	}
	code := run()
	if left := awaitGone(before, func(th thing) bool { return !th.transient() && look(th) }); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind by the tests:\n\t%s\n", strings.Join(left, "\n\t"))
		code = max(code, 1)
	}
	return code
}

// awaitGone polls until nothing new that is mine is left. After leakPatience it gives what is left.
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
	shared bool     // seen alike by all tests of the machine, whatever their namespaces, and names no owner
}

func (th thing) String() string { return th.kind + " " + th.name }

func (th thing) carries(mark string) bool {
	return slices.ContainsFunc(th.text, func(s string) bool { return strings.Contains(s, mark) })
}

// transient reports whether such things come and go without the tests: kernel threads, and what older processes start.
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
	for _, look := range []func(func(string, thing)) error{
		lookProcesses, lookMounts, lookInterfaces, lookHooks, lookCgroups, lookBPF, lookFiles,
	} {
		if err := look(add); err != nil {
			return nil, err
		}
	}
	return found, nil
}
