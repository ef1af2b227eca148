package wire_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// switched makes nodes a and b, and between them a node whose packet program is a learning switch.
func (l *lab) switched() (link wiring.Link, set wire.Program) {
	l.Helper()
	return l.switchedBy(func(set wire.Program) error { return l.SetProgram(l.ctx, "7-p", set) })
}

// switchedBy is switched, and the program is set by a function.
func (l *lab) switchedBy(by func(wire.Program) error) (link wiring.Link, set wire.Program) {
	l.Helper()
	a := l.port("a", nil, "192.0.2.0/31", "2001:db8::/127")
	b := l.port("b", nil, "192.0.2.1/31", "2001:db8::1/127")
	left := l.port("p", nil)
	right := l.port("p", func(p *wire.Port) { p.Inner = "eth1" })
	end := func(port string) wiring.End { return wiring.End{Port: port, MTU: 1500} }
	link = wiring.Link{A: end(a), B: end(left), Program: true}
	for _, w := range []wiring.Link{link, {A: end(right), B: end(b), Program: true}} {
		l.must(l.Join(l.ctx, w.A.Port, w.B.Port))
		l.must(l.Treat(l.ctx, w))
	}
	source := filepath.Join(testkit.ModuleRoot(l), "examples", "programs", "l2.c")
	object, err := program.Build(l.ctx, source)
	l.must(err)
	set = wire.Program{Slice: 7, File: "l2.c", Object: object, Ports: []string{left, right}, Digest: "1"}
	l.must(by(set))
	return link, set
}

// counts are those of the program of node p, its own and the platform's.
func (l *lab) counts() map[string]uint64 {
	l.Helper()
	c, err := l.ProgramCounters(l.ctx, "7-p")
	l.must(err)
	maps.Copy(c.Own, c.Platform)
	return c.Own
}

// Frames go through a packet program; TCP's super-frames are cut on their way to it, and no other frame takes that way.
func TestFramesGoThroughAPacketProgram(t *testing.T) {
	l := newLab(t)
	link, set := l.switched()
	l.ping("a", "192.0.2.1")
	l.ping("b", "2001:db8::")
	l.transfer("192.0.2.1", 8<<20)
	c := l.counts()
	if c["sent"] < 8<<20/1448 || c["flooded"] == 0 || c["frames in"] < c["sent"] {
		t.Errorf("counted %v", c)
	}
	l.wantNoFaults(c)
	now := l.observe().Ports[link.A.Port]
	if now.Peer != link.B.Port || now.Layout == nil || now.Layout.Digest() != link.Layout().Digest() {
		t.Errorf("observed %+v, layout %+v, want %+v", now, now.Layout, link.Layout())
	}

	// Another process adopts the program, and replaces it: counters stay.
	l.reopen()
	running, err := l.Programs(l.ctx)
	l.must(err)
	if is := running["7-p"]; is.Digest != "1" || len(is.Ports) != 2 || is.Verified == 0 || len(running) != 1 {
		t.Errorf("adopted %+v", running)
	}
	set.Digest = "2"
	l.must(l.SetProgram(l.ctx, "7-p", set))
	l.ping("a", "192.0.2.1")
	if after := l.counts(); after["sent"] <= c["sent"] {
		t.Errorf("%d frames were sent before, and %d after", c["sent"], after["sent"])
	}

	// Without an interface, it is not flooded to.
	set.Ports = []string{set.Ports[0], ""}
	l.must(l.SetProgram(l.ctx, "7-p", set))
	l.noPing("a", "192.0.2.1")
	running, err = l.Programs(l.ctx)
	l.must(err)
	if is := running["7-p"]; len(is.Ports) != 1 {
		t.Errorf("ports %v", is.Ports)
	}
	l.must(l.DeleteProgram(l.ctx, "7-p"))
	l.must(l.DeleteProgram(l.ctx, "7-p"))
}

// The way from XDP to tc that cannot be made with a program, or that another process deletes, is made by a later pass.
func TestTheWayFromXDPToTCIsMadeLater(t *testing.T) {
	l := newLab(t)
	cutOff := func() bool {
		running, err := l.Programs(l.ctx)
		l.must(err)
		return running["7-p"].CutOff
	}
	// Where its other end would be.
	l.inNamespace("", "ip", "link", "add", "takeover", "type", "veth", "peer", "name", "other")
	_, set := l.switchedBy(func(set wire.Program) error {
		err := l.SetProgram(l.ctx, "7-p", set)
		if cutOff := (*wire.CutOffError)(nil); !errors.As(err, &cutOff) {
			t.Fatalf("the name is taken: %v", err)
		}
		return nil
	})
	l.ping("a", "192.0.2.1")
	if !cutOff() {
		t.Error("the way is not there, and the program is not cut off")
	}
	l.inNamespace("", "ip", "link", "del", "takeover")
	for range 2 {
		l.must(l.SetProgram(l.ctx, "7-p", set))
		if cutOff() {
			t.Error("the way is there, and the program is cut off")
		}
		l.ping("a", "192.0.2.1")
		l.inNamespace("", "ip", "link", "del", "handover")
		if !cutOff() {
			t.Error("the way was deleted, and the program is not cut off")
		}
	}
}

func (l *lab) wantNoFaults(c map[string]uint64) {
	l.Helper()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if strings.HasPrefix(name, "fault") && c[name] > 0 {
			l.Errorf("%s: %d", name, c[name])
		}
	}
}

// A link begins and ends to cut super-frames in place, with and without queues.
func TestSuperFramesAreCutInAnyTreatment(t *testing.T) {
	l := newLab(t)
	link, _ := l.switched()
	slow := link
	slow.A.Shape, slow.Reinject = slice.Shape{Rate: 400e6}, true
	without := slow
	without.Program = false
	for _, to := range []wiring.Link{slow, without, slow, link, link.Plain(), link} {
		l.must(l.Treat(l.ctx, to))
		state := l.observe()
		digest := ""
		if is := state.Ports[link.A.Port].Layout; is != nil {
			digest = is.Digest()
		}
		if want := to.Layout().Digest(); digest != want && !to.IsPlain() || to.IsPlain() && digest != "" {
			t.Errorf("%+v is observed as %+v", to, state.Ports[link.A.Port].Layout)
		}
		if len(state.Remains) > 0 {
			t.Errorf("remains %v", state.Remains)
		}
		l.ping("a", "192.0.2.1")
		if to.Program {
			before := l.counts()
			l.transfer("192.0.2.1", 2<<20)
			if c := l.counts(); c["fault not plain"] > before["fault not plain"] {
				t.Errorf("super-frames are dropped: %v", c)
			}
		}
	}
	l.must(l.Unjoin(l.ctx, link.A.Port))
	l.must(l.Unjoin(l.ctx, link.B.Port))
	if state := l.observe(); len(state.Remains) > 0 || state.Ports[link.A.Port].Layout != nil {
		t.Errorf("unjoined: %+v, remains %v", state.Ports[link.A.Port], state.Remains)
	}
}

// A program that the host refuses changes nothing, and is told of by its file and line.
func TestRefusedProgramChangesNothing(t *testing.T) {
	l := newLab(t)
	_, set := l.switched()
	for name, change := range map[string]func(*wire.Program){
		"x.c: is no object file":  func(p *wire.Program) { p.Object = []byte("no object") },
		"read the filters of x.c": func(p *wire.Program) { p.Filters = []string{"to=1 -> drop"} },
		"find port s7p99 of 7-p":  func(p *wire.Program) { p.Ports = []string{"s7p99"} },
		"port":                    func(p *wire.Program) { p.Ports = []string{p.Ports[0], p.Ports[0]} },
	} {
		p := set
		p.File, p.Digest = "x.c", "2"
		change(&p)
		if err := l.SetProgram(l.ctx, "7-p", p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	running, err := l.Programs(l.ctx)
	l.must(err)
	if running["7-p"].Digest != "1" {
		t.Errorf("running: %+v", running)
	}
	l.ping("a", "192.0.2.1")
}
