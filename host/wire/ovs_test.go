package wire_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// ovs is an Open vSwitch of a test, beside one that the machine may have: its data path is the one in user space, which
// makes and takes tunnels' packets itself.
type ovs struct {
	*bed
	ns  *os.File
	dir string
}

func newOVS(b *bed, ns *os.File) *ovs {
	b.Helper()
	o := &ovs{b, ns, testkit.TempState(b)}
	database := filepath.Join(o.dir, "conf.db")
	o.run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
	o.daemon("ovsdb-server", database, "--remote=punix:"+o.socket(), "--unixctl="+filepath.Join(o.dir, "ovsdb.ctl"))
	testkit.Eventually(b, func() error {
		_, err := os.Stat(o.socket())
		return err
	}, 20*time.Second, "Open vSwitch's database")
	o.vsctl("--no-wait", "init")
	o.daemon("ovs-vswitchd", "unix:"+o.socket(), "--disable-system", "--unixctl="+o.control())
	return o
}

func (o *ovs) socket() string  { return filepath.Join(o.dir, "db.sock") }
func (o *ovs) control() string { return filepath.Join(o.dir, "vswitchd.ctl") }

func (o *ovs) command(words ...string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir)
	return cmd
}

func (o *ovs) run(words ...string) string {
	o.Helper()
	out, err := o.command(words...).CombinedOutput()
	if err != nil {
		o.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// vsctl changes the database, and waits until the daemon has done what it says.
func (o *ovs) vsctl(words ...string) {
	o.Helper()
	o.run(append([]string{"ovs-vsctl", "--timeout=30", "--db=unix:" + o.socket()}, words...)...)
}

// daemon starts one in the namespace; it ends with the test.
func (o *ovs) daemon(words ...string) {
	o.Helper()
	cmd := o.command(append(words, "-vconsole:off", "-vsyslog:off")...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	o.must(netns.In(o.ns, cmd.Start))
	o.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing of it shall last
		_ = cmd.Wait()
	})
}

// The NIC is a port of one bridge, which has its addresses; the tunnel is one of another, whose own interface is the
// node.
func ovsEnd(b *bed, e foreignEnd) foreign {
	b.Helper()
	const node, outside = "node", "outside"
	b.must(switchOffloads(e.ns, nic, map[string]bool{"rx-gro": false})) // its packet sockets take no super-frames
	o := newOVS(b, e.ns)
	far := foreign{ns: e.ns, device: node, mac: mac(901)}
	kind := "gre"
	if e.kind == slice.VXLAN {
		kind = "vxlan"
	}
	o.vsctl("add-br", outside, "--", "set", "bridge", outside, "datapath_type=netdev",
		"other-config:hwaddr="+mac(0xfe09).String(), "--",
		"add-port", outside, nic, "--", "add-br", node, "--", "set", "bridge", node, "datapath_type=netdev",
		"other-config:hwaddr="+far.mac.String(),
		"other-config:forward-bpdu=true", "--",
		"add-port", node, "far", "--", "set", "interface", "far", "type="+kind,
		fmt.Sprintf("options:remote_ip=%v", e.remote),
		fmt.Sprintf("options:local_ip=%v", e.local), fmt.Sprintf("options:key=%d", e.key))
	bits := e.local.BitLen() * 3 / 4
	if e.ipv6 {
		bits = 64
	}
	b.must(netns.In(e.ns, func() error {
		for _, command := range []string{
			"ip address flush dev " + nic, "ip link set " + outside + " mtu 1600 up",
			"ip address add " + netip.PrefixFrom(e.local, bits).String() + " dev " + outside +
				map[bool]string{true: " nodad"}[e.ipv6],
			"ip link set " + node + " mtu 1500 up", "ip address add 192.0.2.1/31 dev " + node,
			"ip address add 2001:db8::1/127 nodad dev " + node,
		} {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
		}
		return nil
	}))
	// Open vSwitch knows a neighbour from ARP that it sees.
	testkit.Eventually(b, func() error {
		out, err := runIn(e.ns, "ping", "-c1", "-W1", e.remote.String())
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}, 20*time.Second, "Open vSwitch to reach the other machine")
	return far
}

func TestOpenVSwitchInteroperates(t *testing.T) {
	testkit.Root(t)
	for _, kind := range tunnelKinds {
		t.Run(kind.String(), func(t *testing.T) { interoperate(t, kind, ovsEnd) })
	}
}
