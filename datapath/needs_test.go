package datapath

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// verified is how many instructions the verifier looked at.
func (b *bench) verified(d *DataPath) int {
	n, ok := must(d.programs.PortIngress.Info()).VerifiedInstructions()
	if !ok {
		b.Error("the kernel does not report what it verified")
	}
	return int(n)
}

// pinned lists the pins of port_ingress.
func (b *bench) pinned(d *DataPath) []string {
	pins := must(filepath.Glob(filepath.Join(d.version.dir(b.dir), objectProgPortIngress+"-*")))
	for i := range pins {
		pins[i] = filepath.Base(pins[i])
	}
	return pins
}

// A host without tunnels and queues has programs without them. They come with the first record that needs them, at
// all ports at once, and stay.
func TestProgramsAreLoadedForWhatTheHostNeeds(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		is := func(what string, want needs) {
			b.Helper()
			b.name = what
			if d.needs != want {
				b.Errorf("programs are for %q, want %q", d.needs, want)
			}
			name := filepath.Base(d.version.with(want).programPin(b.dir, objectProgPortIngress))
			if diff := cmp.Diff([]string{name}, b.pinned(d)); diff != "" {
				b.Errorf("pins: %s", diff)
			}
		}
		is("at first", 0)
		b.check(d.Add(b.a, Port{Mode: Peer, Peer: b.b, MTU: 1500}))
		b.check(d.Add(b.b, Port{Mode: Peer, Peer: b.a, MTU: 1500, External: true}))
		b.check(d.Attach(b.a))
		is("with ports", 0)
		least := b.verified(d)

		b.check(d.Set(b.a, Port{Mode: Queue, Peer: b.b, MTU: 1500}))
		is("with a queue", needQueues)
		b.check(d.SetTunnel(b.b, sorts[0]))
		is("with a tunnel", needTunnels|needQueues)
		if most := b.verified(d); most <= least {
			b.Errorf("%d instructions are verified with tunnels and queues, %d without", most, least)
		}
		before := b.ids(d)
		b.check(d.DeleteTunnel(b.b))
		b.check(d.Close())
		d = b.open()
		is("after a restart", needTunnels|needQueues)
		if diff := cmp.Diff(before, b.ids(d)); diff != "" {
			b.Errorf("programs were replaced: %s", diff)
		}
		b.check(d.Close())

		// Another build of the programs looks anew.
		d, err := open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newer"})
		b.check(err)
		is("after an upgrade", needQueues)
		b.check(d.Close())
	})
}

// Frames go into the first tunnel of a host from the moment when it is set.
func TestFirstTunnelOfAHostTakesFrames(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		d := w.d
		programs, err := d.loadPrograms(0)
		w.check(err)
		w.check(d.programs.Close())
		d.programs, d.needs = programs, 0
		w.tunnelled(w.a, sorts[0])
		have := w.send(packet{}.bytes(), skbuff{})
		if have.Verdict != verdictRedirect || w.takeAll()[Sent] != 1 {
			w.Errorf("%+v", have)
		}
	})
}
