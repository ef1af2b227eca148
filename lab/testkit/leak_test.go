package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leftNow gives what is new since before and carries the mark or is this process's own.
func leftNow(t *testing.T, before map[string]thing, mark string) []string {
	t.Helper()
	now, err := observe()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for key, th := range now {
		if _, was := before[key]; !was && (th.own || th.carries(mark)) {
			left = append(left, th.String())
		}
	}
	slices.Sort(left)
	return left
}

func hasKind(left []string, kind string) bool {
	return slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, kind) })
}

func TestLeakCheckSeesAnOpenFile(t *testing.T) {
	before := mustObserve(t)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if left := leftNow(t, before, "no such mark"); !hasKind(left, "open file") {
		t.Errorf("an open file was not seen; seen: %q", left)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftNow(t, before, "no such mark"); len(left) > 0 {
		t.Errorf("seen although closed: %q", left)
	}
}

func TestLeakCheckSeesAnOrphanByItsMark(t *testing.T) {
	before := mustObserve(t)
	mark := TempState(t)
	// The shell ends at once, so that the sleeper has another parent.
	out, err := exec.Command("sh", "-c", "MARK="+mark+" sleep 600 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(out))
	Eventually(t, func() error {
		_, err := os.Stat("/proc/" + pid + "/environ")
		return err
	}, time.Second, "the sleeper")
	left := leftNow(t, before, mark)
	if n, err := strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	} else if err := unix.Kill(n, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !hasKind(left, "process "+pid) {
		t.Errorf("process %s was not seen; seen: %q", pid, left)
	}
	if left := awaitGone(before, func(th thing) bool { return th.carries(mark) }); len(left) > 0 {
		t.Errorf("seen although killed: %q", left)
	}
}

func TestLeakCheckSeesANamespaceAndAMount(t *testing.T) {
	Root(t)
	before := mustObserve(t)
	dir := TempState(t)
	sleeper := exec.Command("unshare", "--net", "sleep", "600")
	sleeper.Env = append(os.Environ(), "MARK="+dir)
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, func() error {
		if left := leftNow(t, before, dir); !hasKind(left, "network namespace") {
			return os.ErrNotExist
		}
		return nil
	}, time.Second, "the network namespace to be seen")
	point := filepath.Join(dir, "m")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	left := leftNow(t, before, dir)
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	if !hasKind(left, "mount "+point) {
		t.Errorf("the mount was not seen; seen: %q", left)
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait() // killed: always an error
	if left := awaitGone(before, func(th thing) bool { return th.carries(dir) }); len(left) > 0 {
		t.Errorf("seen although removed: %q", left)
	}
}

func TestParseStatWithBracketsInTheCommand(t *testing.T) {
	p, err := parseStat([]byte("42 (a) b (c) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 8 9"))
	if err != nil {
		t.Fatal(err)
	}
	if p.pid != 42 || p.parent != 7 || p.command != "a) b (c" || p.start != "4711" || p.kernel {
		t.Errorf("parsed as %+v", p)
	}
}

func mustObserve(t *testing.T) map[string]thing {
	t.Helper()
	all, err := observe()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatOnlyInitCanReapIsNoLeak(t *testing.T) {
	const rest = " 1 1 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for stat, want := range map[string]bool{
		"423 (init) Z 1" + rest:     true,
		"423 (init) Z 17" + rest:    false, // its parent lives, and does not wait for it
		"423 (watchfrr) S 1" + rest: false,
	} {
		p, err := parseStat([]byte(stat))
		if err != nil {
			t.Fatal(err)
		}
		if p.awaitsInit() != want {
			t.Errorf("%s: got %v, want %v", stat, !want, want)
		}
	}
}
