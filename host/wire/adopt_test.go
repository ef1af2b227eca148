package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// withNotes opens the data path's notes.
func (l *lab) withNotes(f func(notes *ebpf.Map) error) {
	l.Helper()
	pins, err := filepath.Glob(filepath.Join(l.dir, "bpf", "abi*", "notes"))
	if err != nil || len(pins) != 1 {
		l.Fatalf("notes %v, %v", pins, err)
	}
	notes, err := ebpf.LoadPinnedMap(pins[0], nil)
	l.must(err)
	l.must(errors.Join(f(notes), notes.Close()))
}

// forgetNotes makes the notes be those of a version that had none.
func (l *lab) forgetNotes() {
	l.Helper()
	l.withNotes(func(notes *ebpf.Map) error {
		var keys [][]byte
		var key, value []byte
		all := notes.Iterate()
		for all.Next(&key, &value) {
			keys = append(keys, bytes.Clone(key))
		}
		errs := []error{all.Err()}
		for _, key := range keys {
			errs = append(errs, notes.Delete(key))
		}
		return errors.Join(errs...)
	})
}

// addToAlias gives a device an alias of a version that wrote more into it.
func (l *lab) addToAlias(device, words string) {
	l.Helper()
	l.inNamespace("", "ip", "link", "set", device, "alias", l.alias(device)+" "+words)
}

func (l *lab) alias(device string) string {
	l.Helper()
	out := l.inNamespace("", "ip", "-o", "link", "show", device)
	_, alias, _ := strings.Cut(out, "alias ")
	return strings.TrimSpace(alias)
}

// earlier makes a machine be as an earlier version left it, with an end of a shaped link that leads to another
// machine, a part of a LAN, and sysctls that a process that was killed did not set back.
func (b *bed) earlier() (m *machine, a, c end) {
	b.Helper()
	b.openUnderlays()
	m = b.machines[0]
	kind := tunnelOf{kind: slice.EGRE}
	a, c = b.pair(kind)
	m.sw("s7b1")
	lan := kind.tunnel(m, b.machines[1], "s7t00000002", 1000, 1400)
	m.must(m.AddTunnel(m.ctx, lan))
	m.must(m.Attach(m.ctx, lan.Name, "s7b1"))
	m.must(m.Shape(m.ctx, a.port, wire.FromNode, delayed(slice.Shape{Rate: 10e6})))
	a.ping("a", "192.0.2.1")

	state, err := m.Underlay(m.ctx)
	m.must(err)
	m.addToAlias(a.port, fmt.Sprintf("ns=4026532000 pid=%d", m.node("a").pid))
	m.addToAlias(c.port, "queue=rate=10000000")
	m.addToAlias(lan.Name, "isolated=yes")
	m.addToAlias("uplink", fmt.Sprintf("nics=%d raised=yes", state.NICs[nic].Index))
	m.run("sysctl", "-w", "net.ipv6.conf.default.forwarding=1")
	m.forgetNotes()
	return m, a, c
}

// wantNothingLeft wants the machine's interface and sysctls as they were before there was a host network.
func (m *machine) wantNothingLeft() {
	m.Helper()
	testkit.Eventually(m, func() error { // the kernel takes XDP programs off in the background
		if left := m.programs(); strings.Contains(left, "underlay") || strings.Contains(left, "xdp") {
			return fmt.Errorf("left at the interface:\n%s", left)
		}
		return nil
	}, 5*time.Second, "programs to be gone")
	if set := m.run("sysctl", "-n", "net.ipv6.conf.default.forwarding"); strings.TrimSpace(set) != "0" {
		m.Errorf("net.ipv6.conf.default.forwarding is %s", set)
	}
}

// An upgrade keeps devices, qdiscs and what waits there. What marks said besides is known as before.
func TestDevicesOfAnEarlierVersionAreAdopted(t *testing.T) {
	m, a, c := newBed(t, 2, 1500).earlier()
	before, queues := m.observe(), m.queues(c.port)
	m.reopen()
	after := m.observe()
	p := before.Ports[a.port]
	p.PID = m.node("a").pid
	before.Ports[a.port] = p
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if now := m.queues(c.port); now[1].Frames < queues[1].Frames || queues[1].Frames == 0 {
		t.Errorf("the queue counted %+v, and now %+v", queues, now)
	}
	for device := range after.Ports {
		if alias := m.alias(device); len(strings.Fields(alias)) != 4 {
			t.Errorf("the alias of %s is %q", device, alias)
		}
	}
	if alias := m.alias("uplink"); len(strings.Fields(alias)) != 3 {
		t.Errorf("the alias of the uplink is %q", alias)
	}
	a.ping("a", "192.0.2.1")

	// The node's namespace is found.
	m.wantSegments("a", 1)
	m.must(m.Shape(m.ctx, a.port, wire.FromNode, slice.Shape{}))
	m.wantSegments("a", 65535)
	a.ping("a", "192.0.2.1")
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{}))
	m.wantNothingLeft()
}

func TestHostNetworkOfAnEarlierVersionIsRemoved(t *testing.T) {
	m, _, _ := newBed(t, 2, 1500).earlier()
	m.must(m.Close())
	m.HostNetwork = nil
	m.must(m.there(func() error { return wire.Remove(m.ctx, m.dir) }))
	m.wantNothingLeft()
}

// A proxy port in a bridge is isolated, also when somebody has changed that.
func TestIsolationIsObserved(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	m := b.machines[0]
	b.lanOver(tunnelOf{kind: slice.EGRE})
	proxy, port := lanTunnel(b.machines[1]), "s7p101"
	for device, change := range map[string]string{proxy: "off", port: "on"} {
		m.inNamespace("", "bridge", "link", "set", "dev", device, "isolated", change)
		if sw := m.observe().Ports[device].Switch; sw != "" {
			t.Errorf("%s, isolated %s, is in switch %s", device, change, sw)
		}
		m.must(m.Attach(m.ctx, device, "s7b1"))
		if sw := m.observe().Ports[device].Switch; sw != "s7b1" {
			t.Errorf("%s is in switch %q", device, sw)
		}
	}
	m.ping("n1", "198.51.100.2")
}
