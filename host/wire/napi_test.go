package wire_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
)

// What has no reservation still crosses tunnels where it has to wait, and real-time threads poll the interfaces, also
// when these were down. Without, all is as it was.
func TestBestEffortCrossesTunnelsWhereItWaits(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		b := newBed(t, 2, 1500)
		open := func(bestEffort float64) {
			t.Helper()
			for _, m := range b.machines {
				m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{
					Interfaces: []string{nic}, BestEffort: bestEffort,
				}))
			}
		}
		polled := func() {
			t.Helper()
			const unseen = "the kernel names no thread that polls it"
			have := b.machines[0].xdp()
			if have != "native" && (!strings.HasSuffix(have, unseen) || seesThreads(t)) {
				t.Errorf("the line card is said to be %q", have)
			}
		}
		open(0.5)
		a, c := b.pair(kind)
		a.ping("a", "192.0.2.1")
		c.ping("b", "2001:db8::")
		polled()
		b.machines[0].run("ip", "link", "set", nic, "down")
		b.machines[0].run("ip", "link", "set", nic, "up")
		b.machines[0].run("ip", "address", "replace", b.machines[0].ip6.String()+"/64", "dev", nic, "nodad")
		polled()
		a.ping("a", "192.0.2.1")
		open(0)
		a.ping("a", "192.0.2.1")
		if have := b.machines[0].xdp(); have != "native" {
			t.Errorf("where nothing waits, the line card is said to be %q", have)
		}
	})
}

// Where best effort no longer waits, threads poll the interface if they did before, and none of them is a real-time
// one: also where it is down when that is said.
func TestThreadsThatPollAreAsBeforeWhereNothingWaits(t *testing.T) {
	for _, before := range []string{"0", "1"} {
		t.Run("threaded is "+before, func(t *testing.T) {
			b := newBed(t, 1, 1500)
			m := b.machines[0]
			open := func(bestEffort float64) {
				t.Helper()
				m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{
					Interfaces: []string{nic}, BestEffort: bestEffort,
				}))
			}
			as := func(threaded string, realTime bool) {
				t.Helper()
				if have := m.threaded("cat"); have != threaded {
					t.Errorf("threaded is %s, want %s", have, threaded)
				}
				if have := realTimeThreads(t); seesThreads(t) && have > 0 != realTime {
					t.Errorf("%d threads that poll it are real-time ones", have)
				}
			}
			open(0)
			m.threaded("echo " + before + " >")
			open(0.5)
			as("1", true)
			open(0)
			as(before, false)

			open(0.5)
			m.run("ip", "link", "set", nic, "down")
			open(0)
			m.run("ip", "link", "set", nic, "up")
			_ = m.xdp()
			as(before, false)
		})
	}
}

// threaded reads or writes the file that says whether threads poll the machine's interface.
func (m *machine) threaded(do string) string {
	m.Helper()
	return strings.TrimSpace(m.run("unshare", "--mount", "sh", "-c",
		"mount -t sysfs sysfs /sys && "+do+" /sys/class/net/"+nic+"/threaded"))
}

// realTimeThreads counts the threads that poll interfaces with the name of the machine's, and are real-time ones.
func realTimeThreads(t *testing.T) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(name), "napi/"+nic+"-") {
			continue // most are others, and some have ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if attr, err := unix.SchedGetAttr(pid, 0); err == nil && attr.Policy == unix.SCHED_FIFO {
			n++
		}
	}
	return n
}

// seesThreads tells whether the kernel's threads are in this PID namespace.
func seesThreads(t *testing.T) bool {
	t.Helper()
	name, err := os.ReadFile("/proc/2/comm")
	return err == nil && string(name) == "kthreadd\n"
}
