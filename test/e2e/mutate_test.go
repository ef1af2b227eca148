package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// TestMutations changes a topology file at random: nodes and links come, go, and change their kind, name, MTU and
// shape, between things that users and crashes do. After every step it compares what is wanted with what the server
// says, with what the kernel holds, and with which nodes reach each other. PERGOLA_SOAK and PERGOLA_SEED work as for
// TestSoak.
func TestMutations(t *testing.T) {
	testkit.Root(t)
	long, seed := soakTime(t)
	t.Logf("seed %d", seed)
	m := &mutation{
		wear:  &wear{server: newServer(t, pergola(t)), t: t, random: rand.New(rand.NewPCG(seed, 1))},
		kinds: map[string]string{"n1": "host", "n2": "router", "n3": "switch"},
		links: map[[2]string]string{{"n1", "n2"}: "", {"n1", "n3"}: "", {"n2", "n3"}: ""},
	}
	m.file = filepath.Join(m.state, "mutated.yaml")
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	m.up()
	for end := time.Now().Add(long); time.Now().Before(end); {
		for range 1 + m.random.IntN(3) {
			m.mutate()
		}
		if m.random.IntN(4) == 0 {
			// Not during up, which would start a server of its own where it finds none.
			m.killDuring(t, time.Duration(m.random.IntN(300))*time.Millisecond, "restart", m.anyNode())
		}
		m.up()
		testkit.Eventually(t, m.asWanted, 20*time.Second, "what is there to be as wanted by\n"+m.topology())
	}
	t.Logf("%d steps", m.steps)
	m.mustSucceed(t, "down", "mutated")
}

// mutation is one run: a topology, and a server that holds it.
type mutation struct {
	*wear
	kinds map[string]string    // by node
	links map[[2]string]string // by ends in order: the rest of the line
	lan   bool                 // n1, n2 and n4 share a LAN
}

func (m *mutation) topology() string {
	var b strings.Builder
	b.WriteString("name: mutated\nnodes:\n")
	for _, n := range sorted(m.kinds) {
		fmt.Fprintf(&b, "  %s: {kind: %s}\n", n, m.kinds[n])
	}
	b.WriteString("links:\n")
	for ends, more := range m.links {
		if m.kinds[ends[0]] != "" && m.kinds[ends[1]] != "" {
			fmt.Fprintf(&b, "  - {ends: [%s, %s]%s}\n", ends[0], ends[1], more)
		}
	}
	if m.lan && m.kinds["n1"] != "" && m.kinds["n2"] != "" && m.kinds["n4"] != "" &&
		!slices.Contains([]string{m.kinds["n1"], m.kinds["n2"], m.kinds["n4"]}, "switch") {
		b.WriteString("  - {ends: [n1, n2, n4]}\n")
	}
	return b.String()
}

func sorted(m map[string]string) (names []string) {
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (m *mutation) write() {
	if err := os.WriteFile(m.file, []byte(m.topology()), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mutation) up() {
	m.write()
	m.mustSucceed(m.t, "up", m.file)
}

// mutate changes the file, or what runs.
func (m *mutation) mutate() {
	m.steps++
	name := fmt.Sprint("n", 1+m.random.IntN(6))
	other := fmt.Sprint("n", 1+m.random.IntN(6))
	ends := [2]string{min(name, other), max(name, other)}
	switch m.random.IntN(10) {
	case 0:
		m.lan = !m.lan
	case 1:
		delete(m.kinds, name)
		m.kinds["n1"] = "host" // a topology has a node
	case 2, 3: // there is one switch: two could make a loop
		kind := []string{"host", "router", "switch"}[m.random.IntN(3)]
		for n, k := range m.kinds {
			if k == "switch" && kind == "switch" {
				m.kinds[n] = "host"
			}
		}
		m.kinds[name] = kind
	case 4, 5:
		if name != other {
			m.links[ends] = []string{"", ", rate: 10Mbit", ", rate: 1Gbit", ", mtu: 1400",
				", rate: 20Mbit, mtu: 1300", ", mtu: 9000"}[m.random.IntN(6)]
		}
	case 6:
		delete(m.links, ends)
	case 7:
		if pids, err := m.nodes("mutated"); err == nil && pids[name].PID > 1 {
			_ = syscall.Kill(pids[name].PID, syscall.SIGKILL) // it may have gone by itself
		}
	default:
		m.override(name)
	}
}

func (m *mutation) anyNode() string {
	names := sorted(m.kinds)
	return names[m.random.IntN(len(names))]
}

// override does by hand what does not fit every node: then it is refused.
func (m *mutation) override(node string) {
	way := [][]string{
		{"node", "stop", node}, {"node", "start", node}, {"node", "pause", node}, {"node", "resume", node}, {"restart", node},
		{"link", "down", node + ":eth1"}, {"link", "up", node + ":eth1"}, {"link", "reset", "--all"}, {"link", "set", node + ":eth1", "--rate", "5Mbit"},
	}
	_ = m.command(way[m.random.IntN(len(way))]...).Run()
}

// asWanted compares the topology that the server holds with its status, with the devices of the kernel, and with which
// nodes reach each other.
func (m *mutation) asWanted() error {
	out, err := m.command("inspect", "mutated", "--json").Output()
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	var is api.Slice
	if err := json.Unmarshal(out, &is); err != nil {
		return err
	}
	if !is.Status.Settled {
		return fmt.Errorf("not settled: %v", is.Status.Errors)
	}
	if len(is.Spec.Nodes) != len(m.kinds) || len(is.Status.Nodes) != len(m.kinds) ||
		len(is.Status.Links) != len(is.Spec.Links) {
		return fmt.Errorf("%d nodes, %d in the status, %d wanted", len(is.Spec.Nodes), len(is.Status.Nodes),
			len(m.kinds))
	}
	for i := range is.Spec.Nodes {
		n := &is.Spec.Nodes[i]
		want := slice.Running
		switch is.Overrides.Power[n.Name] {
		case slice.PowerOff:
			want = slice.Stopped
		case slice.PowerFrozen:
			want = slice.Paused
		case slice.PowerOn:
		}
		if got := is.Status.Nodes[n.Name]; got.Phase != want || want != slice.Stopped && n.HasSliver() &&
			syscall.Kill(got.PID, 0) != nil {
			return fmt.Errorf("node %s is %s, process %d: %s is wanted", n.Name, got.Phase, got.PID, want)
		}
	}
	if len(is.Status.Errors) > 0 {
		return fmt.Errorf("settled with errors: %v", is.Status.Errors)
	}
	if err := m.devices(&is); err != nil {
		return err
	}
	return m.reach(&is)
}

// devices compares the ports of the substrate with those of nodes that are on.
func (m *mutation) devices(is *api.Slice) error {
	want := map[string]int{} // MTU
	for i := range is.Spec.Nodes {
		n := &is.Spec.Nodes[i]
		for _, p := range n.Interfaces {
			if n.HasSliver() && is.Overrides.Power[n.Name] != slice.PowerOff {
				want[slice.PortName(is.Spec.ID, p.Port)] = p.MTU
			}
		}
	}
	out, err := exec.Command("nsenter", "--net="+filepath.Join(m.state, "run", "netns", "substrate"), "ip", "-j",
		"link").Output()
	if err != nil {
		return fmt.Errorf("list devices of the substrate: %w", err)
	}
	var all []struct {
		Name  string `json:"ifname"`
		Alias string `json:"ifalias"`
		MTU   int    `json:"mtu"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return err
	}
	for _, d := range all {
		if !strings.HasPrefix(d.Alias, "pergola port ") {
			continue
		}
		if mtu, wanted := want[d.Name]; !wanted || mtu != d.MTU {
			return fmt.Errorf("device %s (%s) has MTU %d; wanted are %v", d.Name, d.Alias, d.MTU, want)
		}
		delete(want, d.Name)
	}
	if len(want) > 0 {
		return fmt.Errorf("the kernel has no device of %v", want)
	}
	return nil
}

// reach pings along every link between two nodes, also where nothing must come through.
func (m *mutation) reach(is *api.Slice) error {
	for i := range is.Spec.Links {
		l := &is.Spec.Links[i]
		from, to := is.Spec.Node(l.Ends[0].Node), is.Spec.Node(l.Ends[1].Node)
		if !from.HasSliver() || !to.HasSliver() || is.Overrides.Power[from.Name] != "" {
			continue
		}
		// the kernel answers for a paused node
		want := !is.Overrides.Down[l.Name] && is.Overrides.Power[to.Name] != slice.PowerOff
		if up := is.Status.Links[l.Name].Up; want && !up {
			return fmt.Errorf("link %s is not up", l.Name)
		}
		address := to.Interface(l.Ends[1].Interface).Addresses[0].Addr().String()
		ping := m.command("exec", "-s", "mutated", from.Name, "--", "ping", "-c1", "-W1", "-I",
			l.Ends[0].Interface, address)
		if out, err := ping.CombinedOutput(); (err == nil) != want {
			return fmt.Errorf("ping along %s, wanted to come through: %v; it did: %v\n%s", l.Name, want,
				err == nil, out)
		}
	}
	return nil
}
