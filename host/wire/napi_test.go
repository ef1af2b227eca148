package wire_test

import (
	"os"
	"strings"
	"testing"

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

// seesThreads tells whether the kernel's threads are in this PID namespace.
func seesThreads(t *testing.T) bool {
	t.Helper()
	name, err := os.ReadFile("/proc/2/comm")
	return err == nil && string(name) == "kthreadd\n"
}
