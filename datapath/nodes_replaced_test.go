package datapath

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// While a node's program is replaced again and again, each frame meets the older program or the newer one.
func TestLiveReplacementLosesNoFrame(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(2)
		stamp := func(version int) node.Node {
			return made(w.compile(fmt.Sprintf(`
PERGOLA_MEMORY(uint64_t, 1);
PERGOLA_COUNTERS { uint64_t seen; };
PERGOLA_PARSE(packet)
{
	uint64_t *m = pergola_memory(0);

	if (m)
		__sync_fetch_and_add(m, 1);
	pergola_count(seen);
	*pergola_header(packet, 14, uint8_t) = %d;
	*pergola_header(packet, 15, uint8_t) = m ? *m : 0;
	packet->output = 2;
	return PERGOLA_SEND;
}`, version)), ports...)
		}
		versions := []node.Node{stamp(1), stamp(2)}
		w.check(n.Set("x", versions[0]))
		refused := made(w.compile("PERGOLA_PARSE(packet) { return packet->window[packet->length]; }"), ports...)
		done := make(chan error)
		const replacements = 20
		go func() {
			var err error
			for i := range replacements {
				if err == nil {
					err = n.Set("x", versions[(i+1)%2])
				}
				if n.Set("x", refused) == nil {
					err = errors.New("a program that reads behind the window was loaded")
				}
			}
			done <- err
		}()
		frames, met := 0, map[byte]int{}
		for running := true; running; frames++ {
			select {
			case err := <-done:
				w.check(err)
				running = false
			default:
			}
			w.check(w.say(w.a, ethernet(mac(101), macA, 0x88b5, 46)))
			got := w.awaits(1)
			if len(got) != 1 || got[0].Port != hosts[1] {
				w.Errorf("frame %d came as %v", frames, got)
				break
			}
			met[got[0].Frame[14]]++
			if got[0].Frame[15] != byte(frames+1) {
				w.Errorf("frame %d: memory has counted %d", frames, got[0].Frame[15])
			}
		}
		c := must(n.Counters("x"))
		t.Log(frames, met, c)
		if len(met) != 2 || met[1] == 0 || met[2] == 0 || c["seen"] != uint64(frames) ||
			c["frames in"] != uint64(frames) {
			w.Errorf("%d frames met versions %v, and were counted as %v", frames, met, c)
		}
		if s := must(n.List())["x"]; s.Digest != versions[0].Digest || !slices.Equal(s.Ports, ports) {
			w.Errorf("in the end there is %+v", s)
		}
		if pins := must(filepath.Glob(filepath.Join(w.d.nodesDir(), "*"))); len(pins) != 1 {
			w.Errorf("pins: %v", pins)
		}
	})
}

// A port's number comes to mean another port: of that, the node has nothing.
func TestLivePortThatCameToBeAnothersIsNotTheNodes(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(3)
		w.check(n.Set("x", made(w.compile(obedient), ports...)))
		w.check(w.d.Add(ports[1], Port{MTU: 1500, MAC: mac(201)})) // as the agent does with a new port
		w.join(ports[1], hosts[1])
		w.drops(n, order(mac(101), doSend, 2))
		f := order([6]byte{255, 255, 255, 255, 255, 255}, doFlood, 0, 1<<2|1<<3)
		w.expectReceived(f, arrival{hosts[2], unix.PACKET_BROADCAST, f})
		f = order(mac(201), doSend, 3)
		w.check(w.say(hosts[1], f)) // a frame to that port meets no program
		if diff := cmp.Diff([]arrival{{ports[1], unix.PACKET_HOST, f}}, w.awaits(1)); diff != "" {
			w.Errorf("received (-want +have):\n%s", diff)
		}
		if s := must(n.List())["x"]; !slices.Equal(s.Ports, []int{ports[0], 0, ports[2]}) {
			w.Errorf("the node's ports are %v", s.Ports)
		}
	})
}

// The end: nothing is left of a node.
func TestLiveDeletedNodeLeavesNothing(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		ports, _ := w.star(2)
		w.check(n.Set("x", made(w.compile(obedient), ports...)))
		w.check(n.Delete("x"))
		f := order(mac(200), doSend, 2)
		w.expectReceived(f, arrival{ports[0], unix.PACKET_HOST, f}) // the node is a host now
		if left := w.left(); len(left) > 0 || len(must(n.List())) > 0 {
			w.Errorf("left: %v", left)
		}
		// A leg that leads to a program that is not there.
		w.leg(ports[0], func(l *objectLeg) { *l = objectLeg{Router: 9, Mtu: 1, Kind: legProgram} })
		w.take()
		w.check(w.say(w.a, f))
		reason := fmt.Sprintf("no program %d", w.a)
		w.await("the frame to be dropped", func() bool { return w.take()[reason] == 1 })
	})
}
