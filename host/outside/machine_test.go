package outside

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

func TestReservedPortsAreWrittenAsTheKernelDoes(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "80": "80", "8080,80": "80,8080", "80-90,91,85-100": "80-100",
		"61000-65095,9,10": "9-10,61000-65095", "0,65535": "0,65535",
	} {
		s, err := parsePortSet(text)
		if got := s.String(); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "80-", "90-80", "65536", "80,,90"} {
		if s, err := parsePortSet(text); err == nil {
			t.Errorf("%q is %q", text, s)
		}
	}
}

func TestReservedPortsOfTheAdministratorStay(t *testing.T) {
	inWorld(t, func(w *world) {
		reserved := func() string { return w.setting("ipv4/ip_local_reserved_ports") }
		write := func(text string) { w.check(os.WriteFile(reservedPorts, []byte(text+"\n"), 0)) }
		write("9100,80,8000-8005")
		a := w.process()
		node := Node{Owner: "1/a", Ports: []slice.HostPort{web, {Protocol: slice.UDP, Port: 8001}}}
		w.check(w.set(a, node))
		w.expect("with a sliver", reserved(), "80,8000-8005,8080,9100,61000-65095")

		// Nothing is written where nothing has changed.
		_, err := w.g.Nodes(context.Background())
		w.check(err)
		before, err := os.Stat(w.g.saved.path)
		w.check(err)
		_, err = w.g.Nodes(context.Background())
		w.check(err)
		after, err := os.Stat(w.g.saved.path)
		w.check(err)
		w.expect("the file is the same", os.SameFile(before, after), true)

		// What the administrator writes meanwhile stays, also at the end; what he takes from us comes back.
		write("80,8000-8003,7000")
		node.Ports = node.Ports[:1]
		w.check(w.set(a, node))
		w.expect("with what was added", reserved(), "80,7000,8000-8003,8080,61000-65095")
		w.g = New(w.dir, nil, nil)
		w.check(w.g.Delete(context.Background(), "1/a"))
		w.expect("at the end", reserved(), "80,7000,8000-8003")
	})
}

func TestTheFileOfAnEarlierVersionIsUnderstood(t *testing.T) {
	inWorld(t, func(w *world) {
		w.check(os.WriteFile(reservedPorts, []byte("80,8080,61000-65095\n"), 0))
		const was = `{"ip_forward":"0","ip_local_reserved_ports":"80"}`
		w.check(os.WriteFile(savedIn(w.dir).path, []byte(was), 0o600))
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.expect("with a sliver", w.setting("ipv4/ip_local_reserved_ports"), "80,61000-65095")
		w.check(w.g.Delete(context.Background(), "1/a"))
		w.expect("at the end", w.setting("ipv4/ip_local_reserved_ports"), "80")
	})
}

// An agent may be killed between the moment when a port is released and that when connections to it are ended.
func TestConnectionsToReleasedPortsEndWithTheNextAgent(t *testing.T) {
	for name, next := range map[string]func(w *world, a int){
		"the next agent lists nodes": func(w *world, _ int) {
			_, err := w.g.Nodes(context.Background())
			w.check(err)
		},
		"the next agent changes the node": func(w *world, a int) {
			other := slice.HostPort{Protocol: slice.TCP, Port: 9090}
			w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{other}}))
		},
	} {
		inWorld(t, func(w *world) {
			a := w.process()
			other := slice.HostPort{Protocol: slice.TCP, Port: 9090}
			for _, port := range []string{"8080", "9090"} {
				w.serve(a, port, "of the sliver")
			}
			w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web, other}}))
			for _, port := range []string{"8080", "9090"} {
				w.expect("port "+port, w.fetch(w.away, "192.0.2.1:"+port), "of the sliver")
			}
			known := func() string {
				all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
				w.check(err)
				var ports []string
				for _, f := range all {
					if f.Reverse.SrcIP.String() == (device{}).inner().String() {
						ports = append(ports, fmt.Sprint(f.Forward.DstPort))
					}
				}
				return strings.Join(ports, " ")
			}
			// As far as the killed agent came.
			d := device{node: Node{Owner: "1/a", Digest: "2", Ports: []slice.HostPort{other}}}
			w.check(d.mark())
			if got := known(); len(strings.Fields(got)) != 2 {
				t.Fatalf("connections at first: %s", got)
			}
			w.g = New(w.dir, nil, nil)
			next(w, a)
			w.expect("connections when "+name, known(), "9090")
		})
	}
}

// What a sliver does at its own end keeps no port that was taken from it, and is mended when it can be.
func TestAPortIsReleasedWhateverTheSliverDoes(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.serve(a, "8080", "of the sliver")
		w.check(w.set(a, Node{Owner: "1/a", Digest: "1", Ports: []slice.HostPort{web}}))
		w.expect("at first", w.fetch(w.away, "192.0.2.1:8080"), "of the sliver")
		w.run(a, "ip", "link", "set", Inner, "name", "hidden")
		next := Node{Owner: "1/a", Digest: "2", Rate: 1e6}
		if err := w.set(a, next); err == nil {
			t.Error("the sliver's end is missing, and that is no error")
		}
		w.expect("when it was taken back", w.fetch(w.away, "192.0.2.1:8080"), "")
		all, err := w.g.Nodes(context.Background())
		w.check(err)
		if len(all) != 1 || all[0].Digest != "1" || all[0].Rate != 0 {
			t.Errorf("it is not tried again: %+v", all)
		}
		w.run(a, "ip", "link", "set", "hidden", "name", Inner)
		w.check(w.set(a, next))
		if rate := w.run(a, "tc", "qdisc", "show", "dev", Inner); !strings.Contains(rate, "rate 1Mbit") {
			t.Errorf("the sliver's end has %s", rate)
		}
	})
}

// A pass that failed at the machine's end is made up for by the next one, with connections to what was released.
func TestWhatFailedAtTheMachinesEndIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.serve(a, "8080", "of the sliver")
		w.check(w.set(a, Node{Owner: "1/a", Digest: "1", Ports: []slice.HostPort{web}}))
		w.expect("at first", w.fetch(w.away, "192.0.2.1:8080"), "of the sliver")
		kept, err := os.ReadFile(w.g.saved.path)
		w.check(err)
		w.check(os.WriteFile(w.g.saved.path, []byte("{"), 0o600))
		next := Node{Owner: "1/a", Digest: "2", Rate: 1e6}
		if err := w.set(a, next); err == nil {
			t.Fatal("what was saved cannot be read, and that is no error")
		}
		w.check(os.WriteFile(w.g.saved.path, kept, 0o600))
		w.check(w.set(a, next))
		if rate := w.run(a, "tc", "qdisc", "show", "dev", Inner); !strings.Contains(rate, "rate 1Mbit") {
			t.Errorf("the sliver's end has %s", rate)
		}
		all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		w.check(err)
		for _, f := range all {
			if f.Reverse.SrcIP.String() == (device{}).inner().String() {
				t.Errorf("a connection to the port goes on: %v", f)
			}
		}
	})
}

// Where it cannot be read what the machine forwarded before, no rule lets anybody through.
func TestWithoutWhatWasSavedThereAreNoNewRules(t *testing.T) {
	inWorld(t, func(w *world) {
		w.check(os.WriteFile(forwarding, []byte("0"), 0))
		w.check(w.set(w.process(), Node{Owner: "1/a", NAT: true}))
		w.check(os.WriteFile(w.g.saved.path, []byte("{"), 0o600))
		err := w.set(w.process(), Node{Owner: "1/b", NAT: true})
		if err == nil || !strings.Contains(err.Error(), "read the machine's settings") {
			t.Errorf("the error is %v", err)
		}
	})
}

// The table says what the machine forwarded before, when the file that said so is lost.
func TestWhatWasSavedIsMadeAgainFromTheTable(t *testing.T) {
	for _, before := range []string{"0", "1"} {
		inWorld(t, func(w *world) {
			w.six()
			w.check(os.WriteFile(forwarding, []byte(before), 0))
			w.check(os.WriteFile(forwarding6, []byte(before), 0))
			w.check(os.WriteFile(reservedPorts, []byte("80,9100\n"), 0))
			w.check(w.set(w.process(), Node{Owner: "1/a", NAT: true, Ports: []slice.HostPort{web}}))
			forward := []string{"nft", "--stateless", "list", "chain", "inet", tableName, forwardChain}
			rules := w.run(0, forward...)

			w.check(os.Remove(w.g.saved.path))
			var log strings.Builder
			w.g = New(w.dir, nil, slog.New(slog.NewTextHandler(&log, nil)))
			w.check(w.set(w.process(), Node{Owner: "2/b", NAT: true}))
			w.check(w.g.Delete(context.Background(), "2/b"))
			w.expect("the rules", w.run(0, forward...), rules)
			w.expect("warnings", strings.Count(log.String(), "is lost"), 1)
			w.expect("what is said of new ones", strings.Count(log.String(), "forwarded nothing"), 0)

			w.check(w.g.Delete(context.Background(), "1/a"))
			w.expect("IPv4 is forwarded at the end", w.setting("ipv4/ip_forward"), before)
			w.expect("IPv6 is forwarded at the end", w.setting("ipv6/conf/all/forwarding"), before)
			w.expect("ports at the end", w.setting("ipv4/ip_local_reserved_ports"), "80,9100")
		})
	}
}
