package wire_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
)

// What the machine's interfaces come to do is told at once, and what is done to open the underlay is not told back.
func TestChangesOfInterfacesAreTold(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	m.openUnderlay()
	testkit.Eventually(t, func() error { // the kernel tells of carriers, too, and later
		if all := m.run("ip", "-o", "-br", "link"); strings.Contains(all, "NO-CARRIER") {
			return errors.New(all)
		}
		return nil
	}, 10*time.Second, "all interfaces to have carriers")
	var told atomic.Int32
	var stop func() error
	m.must(m.there(func() (err error) {
		stop, err = wire.WatchInterfaces(func() { told.Add(1) })
		return err
	}))
	m.openUnderlay()
	_, err := m.Underlay(m.ctx)
	m.must(err)
	changes := []struct {
		name string
		make func()
	}{
		{"a new interface", func() { m.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "other") }},
		{"one that is set up", func() { m.run("ip", "link", "set", "eth1", "up") }},
		{"one that is deleted", func() { m.run("ip", "link", "delete", "eth1") }},
	}
	if kernelTellsOfDrivers(m) {
		changes = append(changes, struct {
			name string
			make func()
		}{
			"a driver that takes less",
			func() { m.must(switchOffloads(b.wires, "w1", map[string]bool{"rx-gro": false})) },
		})
	}
	m.run("ip", "link", "set", nic, "alias", "after it") // the kernel tells in turn
	testkit.Eventually(t, func() error {
		if told.Load() == 0 {
			return errors.New("not told")
		}
		return nil
	}, 10*time.Second, "another name to be told")
	if n := told.Load(); n > 1 {
		t.Errorf("told %d times of what was opened again", n-1)
	}
	for _, c := range changes {
		before := told.Load()
		c.make()
		testkit.Eventually(t, func() error {
			if told.Load() == before {
				return errors.New("not told")
			}
			return nil
		}, 10*time.Second, c.name+" to be told")
	}
	m.must(stop())
	before := told.Load()
	m.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "other")
	if told.Load() != before {
		t.Error("told after the end")
	}
}

// kernelTellsOfDrivers is true since Linux 6.3.
func kernelTellsOfDrivers(m *machine) bool {
	family := false
	m.must(m.there(func() error {
		_, err := netlink.GenlFamilyGet("netdev")
		family = err == nil
		return nil
	}))
	return family
}

// An interface that a user deletes in his node takes the port along, and whoever opened the host network hears of it.
func TestDeletionInANodeIsTold(t *testing.T) {
	l := newLab(t)
	l.must(l.Close())
	var told atomic.Int32
	var err error
	l.HostNetwork, err = wire.Open(l.ctx, wire.Config{StateDir: l.dir, Deleted: func() { told.Add(1) }})
	l.must(err)
	port := l.port("a", nil, "192.0.2.0/31")
	before := told.Load()
	if out, err := l.exec("a", "ip", "link", "delete", "eth0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testkit.Eventually(t, func() error {
		if _, there := l.observe().Ports[port]; there || told.Load() == before {
			return errors.New("not told, or not gone")
		}
		return nil
	}, 10*time.Second, "the deletion to be told")
}
