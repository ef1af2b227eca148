package datapath

import (
	"os"
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

// A host has programs for what it needs. More comes with the first record that needs it, at all ports at once, and
// stays.
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
		b.check(d.Set(b.a, Port{Mode: Peer, Peer: b.b, MTU: 1500, Police: Policer{Rate: 1e6, Burst: 1e6}}))
		is("with a policer", needTunnels|needQueues|needPolicers)
		six := sorts[2]
		rest := needStormControl | needPrograms | needUDP | needCard | needMet | needMPLS | needEarly
		b.check(d.SetTunnel(b.b, six))
		is("with a tunnel over IPv6", allNeeds&^rest)
		six.StormControl = 10
		b.check(d.SetTunnel(b.b, six))
		is("with storm control", allNeeds&^needPrograms&^needUDP&^needCard&^needMet&^needMPLS&^needEarly)
		six.CountsMet = true
		b.check(d.SetTunnel(b.b, six))
		is("with a tunnel that counts packet programs",
			allNeeds&^needPrograms&^needUDP&^needCard&^needMPLS&^needEarly)
		b.check(d.Nodes().Need(false))
		is("with packet programs", allNeeds&^needUDP&^needCard&^needMPLS&^needEarly)
		b.check(d.Nodes().Need(true))
		is("with UDP ports", allNeeds&^needCard&^needMPLS&^needEarly)
		b.check(d.QueueUplink(true)) // there is none
		is("with a queue at the uplink", allNeeds&^needMPLS&^needEarly)
		b.check(d.SetLabel(1, 100, NHLFE{Pop: true}))
		is("with labels", allNeeds&^needEarly)
		b.check(d.SetBestEffort(0.5))
		is("with a share for best effort", allNeeds)
		before := b.ids(d)
		b.check(d.DeleteTunnel(b.b))
		b.check(d.DeleteLabel(1, 100))
		b.check(d.SetBestEffort(0))
		b.check(d.Close())
		d = b.open()
		is("after a restart", allNeeds)
		if diff := cmp.Diff(before, b.ids(d)); diff != "" {
			b.Errorf("programs were replaced: %s", diff)
		}
		b.check(d.Close())

		// Another build of the programs looks anew.
		d, err := open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newer"})
		b.check(err)
		is("after an upgrade", needPolicers)
		b.check(d.SetTunnel(b.b, six))
		b.check(os.MkdirAll(filepath.Join(d.nodesDir(), "1-x"), 0o700))
		b.check(d.Close())
		d, err = open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newest"})
		b.check(err)
		is("after an upgrade with a tunnel and a node",
			allNeeds&^needQueues&^needUDP&^needCard&^needMPLS&^needEarly)
		b.check(d.SetUplink(b.b))
		b.check(d.QueueUplink(true))
		b.check(d.Close())
		d, err = open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "latest"})
		b.check(err)
		is("after an upgrade with a queue at the uplink", allNeeds&^needQueues&^needUDP&^needMPLS&^needEarly)
		b.check(d.Close())
	})
}

// Programs have no code for what a host does not need, and the verifier looks at less of those that need little.
func TestProgramsHaveNoCodeForWhatAHostDoesNotNeed(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		cost := func(n needs) (instructions, verified int) {
			programs, err := d.loadPrograms(n)
			b.check(err)
			was := d.programs
			d.programs = programs
			for _, p := range d.byName() {
				info := must((*p).Info())
				looked, _ := info.VerifiedInstructions()
				instructions += must(info.TranslatedSize()) / 8
				verified += int(looked)
			}
			d.programs = was
			b.check(programs.Close())
			return instructions, verified
		}
		least, leastVerified := cost(0)
		tunnels, tunnelsVerified := cost(needTunnels)
		b.Logf("nothing: %d instructions, %d verified", least, leastVerified)
		b.Logf("tunnels: %d instructions, %d verified", tunnels, tunnelsVerified)
		if least >= tunnels || leastVerified >= tunnelsVerified {
			b.Error("programs without tunnels are not smaller")
		}
		for _, s := range switches[1:] {
			more, verified := cost(needTunnels | s.need)
			b.Logf("tunnels and %s: %d instructions, %d verified", s.name, more, verified)
			// Where packets wait, nothing else is looked at.
			if more <= tunnels || verified <= tunnelsVerified && s.need != needCard {
				b.Errorf("programs without %s are not smaller", s.name)
			}
		}
	})
}

// Frames go into the first tunnel of a host, and come out of it, from the moment when it is set.
func TestFirstTunnelOfAHostTakesFrames(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		d := w.d
		for _, tunnel := range sorts {
			w.name = tunnel.named()
			programs, err := d.loadPrograms(0)
			w.check(err)
			w.check(d.programs.Close())
			d.programs, d.needs = programs, 0
			port := w.tunnelled(w.a, tunnel)
			have := w.send(packet{}.bytes(), skbuff{})
			if have.Verdict != verdictRedirect || w.takeAll()[Sent] != 1 {
				w.Errorf("%+v", have)
			}
			came := tunnel.turned().outer(packet{to: macA}.bytes(), around{})
			if have := w.receive(came); have.Verdict != verdictRedirect || have.Counted[Received] != 1 {
				w.Errorf("%+v", have)
			}
			w.check(d.Forget(port))
		}
	})
}
