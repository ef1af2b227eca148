package running

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// labRuntime is a runtime of nodes that are bare namespaces.
type labRuntime struct{ *daemons.Lab }

func (l labRuntime) path(id sliver.ID, name string) string {
	return filepath.Join("/proc", strconv.Itoa(l.PID(id.Node)), "root", name)
}

func (l labRuntime) ReadFile(id sliver.ID, name string, _ int64) (slice.File, error) {
	data, err := os.ReadFile(l.path(id, name))
	return slice.File{Path: name, Data: data}, err
}

func (l labRuntime) ReadDir(id sliver.ID, name string) (names []string, err error) {
	entries, err := os.ReadDir(l.path(id, name))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (l labRuntime) EtcFiles(id sliver.ID, _ int64, skip func(string) bool) (all []slice.File, err error) {
	for _, dir := range []string{"/etc/frr", "/etc/bird"} {
		if skip(dir) {
			continue
		}
		names, err := l.ReadDir(id, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			f, err := l.ReadFile(id, filepath.Join(dir, name), 0)
			if err != nil {
				return nil, err
			}
			if !skip(f.Path) {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

func (l labRuntime) Dial(ctx context.Context, id sliver.ID, name string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", l.path(id, name))
}

func (l labRuntime) WriteFiles(_ context.Context, id sliver.ID, files []slice.File) error {
	for _, f := range files {
		if err := os.WriteFile(l.path(id, f.Path), f.Data, os.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	return nil
}

func (l labRuntime) Exec(_ context.Context, id sliver.ID, r sliver.ExecRequest) (int, error) {
	out, err := l.Lab.Exec(id.Node, r.Args...)
	if err != nil {
		return -1, err
	}
	_, err = fmt.Fprint(r.Stdout, out)
	return 0, err
}

// two is two routers that speak protocols.
func two(daemon slice.Daemon, protocols ...slice.Protocol) *slice.Slice {
	var b daemons.Topology
	for _, name := range []string{"r1", "r2"} {
		n := b.Router(name, daemon, protocols...)
		n.Routing.BGP = &slice.BGPNode{AS: 65001, Networks: n.Loopbacks}
		n.Routing.Static = []slice.Route{{To: netip.MustParsePrefix("192.0.2.0/24"), Blackhole: true}}
	}
	b.Link("r1", "r2")
	return b.Done()
}

// started gives the daemon of r1, once it has started.
func started(t *testing.T, s *slice.Slice) (*daemons.Lab, Daemon) {
	t.Helper()
	l := daemons.New(t, s)
	var d Daemon
	for i := range s.Nodes {
		n := &s.Nodes[i]
		r, err := routing.NewRenderer(s).Render(n)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(n.Name, r.Files)
		l.Start(n.Name, r.Command)
		if n.Name == "r1" {
			d = Daemon{
				Runtime: labRuntime{l}, ID: sliver.ID{Node: n.Name},
				Kind: n.Routing.Daemon, Files: r.Files,
			}
		}
	}
	testkit.Eventually(t, func() error {
		if d.Kind == slice.BIRD {
			_, err := l.Exec("r1", "birdc", "show", "status")
			return err
		}
		if err := d.Note(t.Context(), time.Now()); err != nil {
			return err
		}
		_, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile)
		return err
	}, time.Minute, "the daemons to start, and what they loaded to be noted")
	return l, d
}

func wantChanged(t *testing.T, d Daemon, want bool, when string) {
	t.Helper()
	if changed, err := d.IsChanged(t.Context()); err != nil || changed != want {
		t.Errorf("%s: changed is %t, %v, want %t", when, changed, err, want)
	}
}

// What FRR's daemons say by their sockets is what vtysh showed of them, whatever they speak; a change is seen, and when
// it is taken back, none is.
func TestChangesOfFRRAreSeen(t *testing.T) {
	for _, protocols := range [][]slice.Protocol{
		{slice.OSPF}, {slice.ISIS}, {slice.RIP}, {slice.OSPF, slice.BGP}, {slice.Static},
	} {
		t.Run(fmt.Sprint(protocols), func(t *testing.T) {
			testkit.LeakCheck(t)
			l, d := started(t, two(slice.FRR, protocols...))
			wantChanged(t, d, false, "at first")
			vtysh := func(lines ...string) {
				t.Helper()
				args := []string{"vtysh", "-c", "configure terminal"}
				for _, line := range lines {
					args = append(args, "-c", line)
				}
				if _, err := l.Exec("r1", args...); err != nil {
					t.Fatal(err)
				}
			}
			vtysh("interface eth1", "description by hand")
			wantChanged(t, d, true, "after a change")
			files, err := d.Configuration(t.Context())
			if err != nil || !strings.Contains(string(files[frrConf]), "\n description by hand\n") {
				t.Errorf("the configuration is %q, %v", files, err)
			}
			const want = "+ interface eth1 / description by hand"
			if lines := d.Difference(files); len(lines) != 1 || lines[0] != want {
				t.Errorf("the difference is %q", lines)
			}
			vtysh("interface eth1", "no description")
			wantChanged(t, d, false, "when it is taken back")
			if _, err := l.Exec("r1", "vtysh", "-c", "write memory"); err != nil {
				t.Fatal(err)
			}
			wantChanged(t, d, false, "when nothing new was written")
		})
	}
}

// What was configured by hand, and is then given to the daemons as their file, is no change any more: unless something
// else was configured beside it.
func TestFRRRunsAsGivenWhenItsFileIsWhatItRuns(t *testing.T) {
	testkit.LeakCheck(t)
	l, d := started(t, two(slice.FRR, slice.OSPF))
	want := func(want bool, when string) {
		t.Helper()
		l.Write("r1", d.Files)
		if _, err := l.Exec("r1", routing.ScriptPath, "reload-user"); err != nil {
			t.Fatal(err)
		}
		if all, err := d.RunsAsGiven(); err != nil || all != want {
			t.Errorf("%s: it runs as given: %t, %v", when, all, err)
		}
	}
	vtysh := func(line string) {
		t.Helper()
		if _, err := l.Exec("r1", "vtysh", "-c", "configure terminal", "-c", line); err != nil {
			t.Fatal(err)
		}
	}
	vtysh("ip route 198.51.100.0/24 blackhole")
	files, err := d.Configuration(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range d.Files {
		if f.Path == "/etc/frr/frr.conf" {
			d.Files[i].Data = files[frrConf]
		}
	}
	want(true, "when its file is what it runs")
	vtysh("ip route 203.0.113.0/24 blackhole")
	want(false, "with a route more")
}

func TestChangesOfBIRDAreSeen(t *testing.T) {
	testkit.LeakCheck(t)
	l, d := started(t, two(slice.BIRD, slice.OSPF))
	wantChanged(t, d, false, "at first")
	if _, err := l.Exec("r1", "sh", "-c", "echo '# by hand' >>/etc/bird/bird.conf"); err != nil {
		t.Fatal(err)
	}
	wantChanged(t, d, true, "after a change")
	files, err := d.Configuration(t.Context())
	if err != nil || !strings.HasSuffix(string(files["bird.conf"]), "# by hand\n") {
		t.Errorf("the configuration is %q, %v", files, err)
	}
}

// Nothing is noted of daemons that are still starting; and what nobody has got into is not changed.
func TestFRRIsNotedOnceItHasLoadedItsConfiguration(t *testing.T) {
	testkit.LeakCheck(t)
	l, d := started(t, two(slice.FRR, slice.OSPF))
	noted := func() bool {
		t.Helper()
		_, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	const starts = "rm /run/frr/loaded && mv /run/frr/watchfrr.pid /run/frr/aside"
	if _, err := l.Exec("r1", "sh", "-c", starts); err != nil {
		t.Fatal(err)
	}
	if err := d.Note(t.Context(), time.Now()); err != nil || noted() {
		t.Errorf("while they start: noted is %t, %v", noted(), err)
	}
	wantChanged(t, d, false, "while nobody has got in")
	awaits := make(chan error)
	go func() { awaits <- d.Note(t.Context(), time.Now().Add(time.Minute)) }()
	if _, err := l.Exec("r1", "mv", "/run/frr/aside", "/run/frr/watchfrr.pid"); err != nil {
		t.Fatal(err)
	}
	if err := <-awaits; err != nil || !noted() {
		t.Errorf("when they have started: noted is %t, %v", noted(), err)
	}
	const byHand = "interface eth1\n description by hand\n"
	was, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Exec("r1", "sh", "-c", "printf '"+byHand+"' | vtysh -f /dev/stdin"); err != nil {
		t.Fatal(err)
	}
	if err := d.Note(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if is, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile); err != nil || !bytes.Equal(is.Data, was.Data) {
		t.Errorf("what was noted became %q, %v", is.Data, err)
	}
	wantChanged(t, d, true, "after a change")
}
