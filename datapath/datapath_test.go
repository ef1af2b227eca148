package datapath

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// inBench runs a test in a network namespace with two veth pairs, and with a bpf file system.
func inBench(t testing.TB, f func(b *bench)) {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	err := netns.New(func() error {
		if out, err := exec.Command("sh", "-ec", "ip link add pa type veth peer name pa1; "+
			"ip link add pb type veth peer name pb1").CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
		f(&bench{TB: t, dir: dir, a: ifindex(t, "pa"), b: ifindex(t, "pb")})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// bench is what a test of programs needs. Tests run on a goroutine of their own: they must not call FailNow.
type bench struct {
	testing.TB
	name string // of the case, if there are several
	dir  string
	a, b int
}

func (b *bench) Errorf(format string, args ...any) {
	b.Helper()
	b.TB.Errorf(strings.TrimPrefix(b.name+": ", ": ")+format, args...)
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Error(err)
	}
}

func (b *bench) open() *DataPath {
	d, err := Open(b.dir, byClsact{})
	if err != nil {
		b.Error(err)
		panic(err)
	}
	return d
}

// byClsact attaches to each device by itself; host/wire's own hook is tested there.
type byClsact struct{}

func (byClsact) Attach(ifindex int, p *ebpf.Program) error {
	return attachIngress(ifindex, objectProgPortIngress, p)
}

func (h byClsact) Replace(ifindexes []int, p *ebpf.Program) error {
	for _, i := range ifindexes {
		if err := h.Attach(i, p); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}

func ifindex(t testing.TB, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Error(err)
		return 0
	}
	return i.Index
}

func device(t testing.TB, index int) string {
	t.Helper()
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		t.Error(err)
		return ""
	}
	return i.Name
}

func TestStructsAreLaidOutAsInC(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"port": objectPort{}, "counters": objectCounters{},
		"traffic": objectTraffic{}, "punted": objectPunted{}, "leg": objectLeg{},
		"tunnel": objectTunnel{}, "end": objectEnd{}, "encapsulation": objectEncapsulation{},
		"uplink": objectUplink{}, "underlay": objectUnderlay{}, "meter": objectMeter{},
		"label_key": objectLabelKey{}, "nhlfe": objectNhlfe{},
		"label_edit": objectLabelEdit{}, "unwalked": objectUnwalked{}} {
		var c *btf.Struct
		if err := spec.Types.TypeByName(name, &c); err != nil {
			t.Fatal(err)
		}
		g := reflect.TypeOf(value)
		if uintptr(c.Size) != g.Size() {
			t.Errorf("struct %s: %d bytes in C, %d in Go", name, c.Size, g.Size())
		}
		for _, m := range c.Members {
			f, ok := g.FieldByNameFunc(func(s string) bool {
				return strings.EqualFold(s,
					strings.ReplaceAll(m.Name, "_", ""))
			})
			size, err := btf.Sizeof(m.Type)
			if err != nil || !ok || f.Offset != uintptr(m.Offset.Bytes()) ||
				f.Type.Size() != uintptr(size) {
				t.Errorf("struct %s, member %s: at %d in C, %d in Go (%v)", name, m.Name,
					m.Offset.Bytes(), f.Offset, err)
			}
		}
	}
}

func TestConstantsAreThoseOfC(t *testing.T) {
	if n := must(loadObject()).Maps[objectMapPorts].MaxEntries; n != MaxPorts {
		t.Errorf("MaxPorts is %d, and in C %d", MaxPorts, n)
	}
	have, err := Reasons()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"continue", "unknown port", "not wired", "peer gone", "too big", "no memory",
		"stray", "malformed", "fragment", "unknown tunnel", "congestion", "vlan tags", "super frame",
		"no uplink",
		"no route", "storm", "off underlay", "policed", "no program", "checksum",
		"unknown label", "label ttl", "label stack", "router alert", "lsp down",
		"label loop", "reservation exceeded", "no time"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestRestartAdoptsWhatIsPinned(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		want := Port{Mode: Peer, Peer: b.b, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 1}}
		if err := d.Set(b.a, want); err != nil {
			b.Error(err)
		}
		first := b.ids(d)
		if err := d.Close(); err != nil {
			b.Error(err)
		}
		d = b.open()
		defer func() { _ = d.Close() }()
		if diff := cmp.Diff(first, b.ids(d)); diff != "" {
			b.Errorf("programs were replaced: %s", diff)
		}
		if have, ok, err := d.Port(b.a); err != nil || !ok || have != want {
			b.Errorf("port record %+v, %v, %v; want %+v", have, ok, err, want)
		}
	})
}

func (b *bench) ids(d *DataPath) map[string]ebpf.ProgramID {
	ids := map[string]ebpf.ProgramID{}
	for name, p := range d.byName() {
		info, err := (*p).Info()
		if err != nil {
			b.Error(err)
			continue
		}
		ids[name], _ = info.ID()
	}
	return ids
}

// An older data path has another layout of its records; the new one takes the ports over and leaves nothing of the old.
func TestNewABITakesOverPorts(t *testing.T) {
	inBench(t, func(b *bench) {
		older, err := loadObject()
		if err != nil {
			b.Error(err)
			return
		}
		shuffle(b, older)
		d, err := open(b.dir, byClsact{}, older, version{abi: 0, programs: "older"})
		if err != nil {
			b.Error(err)
			return
		}
		// Layout of the older record: peer, mode, mtu, mac.
		record := make([]byte, d.maps.Ports.ValueSize())
		copy(record, []byte{byte(b.b), 0, 0, 0, byte(Queue), 0, 0, 0, 0xdc, 5, 0, 0, 2, 0, 0, 0, 0, 7})
		if err := d.maps.Ports.Put(uint32(b.a), record); err != nil {
			b.Error(err)
		}
		if err := d.Attach(b.a); err != nil {
			b.Error(err)
		}
		if err := d.Close(); err != nil {
			b.Error(err)
		}
		d = b.open()
		defer func() { _ = d.Close() }()
		want := map[int]Port{b.a: {Mode: Queue, Peer: b.b, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 7}}}
		have, err := d.Ports()
		if diff := cmp.Diff(want, have); diff != "" || err != nil {
			b.Errorf("ports taken over: %v\n%s", err, diff)
		}
		if left, err := filepath.Glob(filepath.Join(b.dir, "abi*")); err != nil || len(left) != 1 {
			b.Errorf("pins: %v, %v", left, err)
		}
	})
}

// shuffle exchanges the first two members of struct port.
func shuffle(t testing.TB, spec *ebpf.CollectionSpec) {
	t.Helper()
	port, ok := spec.Maps[objectMapPorts].Value.(*btf.Struct)
	if !ok {
		t.Error("the ports map has no typed value")
		return
	}
	m := port.Members
	m[0], m[1] = m[1], m[0]
	m[0].Offset, m[1].Offset = m[1].Offset, m[0].Offset
}

func TestReplacedProgramKeepsPortsAndCounters(t *testing.T) {
	inBench(t, func(b *bench) {
		spec, err := loadObject()
		if err != nil {
			b.Error(err)
			return
		}
		d, err := open(b.dir, byClsact{}, spec, version{abi: ABI, programs: "older"})
		if err != nil {
			b.Error(err)
			return
		}
		if err := d.Set(b.a, Port{Mode: Kernel, MTU: 1500}); err != nil {
			b.Error(err)
		}
		if err := d.Set(9999, Port{MTU: 1500}); err != nil { // its device is gone
			b.Error(err)
		}
		if err := d.Attach(b.a); err != nil {
			b.Error(err)
		}
		if err := d.Close(); err != nil {
			b.Error(err)
		}
		d = b.open()
		defer func() { _ = d.Close() }()
		if diff := cmp.Diff(map[int]Port{b.a: {Mode: Kernel, MTU: 1500}, 9999: {MTU: 1500}},
			must(d.Ports())); diff != "" {
			b.Error(diff)
		}
		if pins, err := filepath.Glob(filepath.Join(b.dir, "abi*", "*-*")); err != nil ||
			len(pins) != len(d.byName()) {
			b.Errorf("pinned programs: %v, %v", pins, err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
