package path

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/vnet"
)

// ovs makes chains with Open vSwitch: each router is a bridge whose flows route, and patch ports join them. Its database and daemon run
// in a directory and a namespace of their own, beside a system's Open vSwitch. The data path is the one in user space, which needs no
// kernel module; it takes and gives frames through packet sockets and has a core of its own while others have none.
type ovs struct {
	dir  string
	ns   *os.File
	undo undo
}

func openOVS(ctx context.Context) (_ maker, err error) {
	o := &ovs{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, err
		}
	}
	d, err := newDirectory()
	if err != nil {
		return nil, err
	}
	o.dir = d.path
	o.undo.push(d.remove)
	if o.ns, err = newNamespace(); err != nil {
		return nil, err
	}
	o.undo.push(o.ns.Close)
	database := filepath.Join(o.dir, "conf.db")
	if err := o.run(ctx, "ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return nil, err
	}
	if err := o.daemon("ovsdb-server", database, "--remote=punix:"+o.socket(), "--unixctl="+filepath.Join(o.dir, "ovsdb.ctl")); err != nil {
		return nil, err
	}
	if err := appears(ctx, o.socket()); err != nil {
		return nil, err
	}
	if err := o.vsctl(ctx, "--no-wait", "init"); err != nil {
		return nil, err
	}
	return o, o.daemon("ovs-vswitchd", "unix:"+o.socket(), "--disable-system", "--unixctl="+filepath.Join(o.dir, "vswitchd.ctl"))
}

func (o *ovs) socket() string { return filepath.Join(o.dir, "db.sock") }

func (o *ovs) close() error { return o.undo.run() }

func (o *ovs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir)
	return cmd
}

func (o *ovs) run(ctx context.Context, name string, args ...string) error {
	out, err := o.command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, lastLine(out))
	}
	return nil
}

// vsctl changes the database, and waits until the daemon has done what it says.
func (o *ovs) vsctl(ctx context.Context, args ...string) error {
	return o.run(ctx, "ovs-vsctl", append([]string{"--timeout=10", "--db=unix:" + o.socket()}, args...)...)
}

// daemon starts a daemon in the namespace; it ends with the chains.
func (o *ovs) daemon(name string, args ...string) error {
	// Not bound to a context: it is ended in order.
	cmd := o.command(context.Background(), name, append(args, "-vconsole:off", "-vsyslog:off")...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL} // Ctrl-C is for us alone
	if err := in(o.ns, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	o.undo.push(func() error {
		_ = cmd.Process.Kill() // nothing of it shall last
		_ = cmd.Wait()
		return nil
	})
	return nil
}

func (o *ovs) hosts(ctx context.Context, routers int) (_ *Chain, err error) {
	c := &Chain{Routers: routers}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a chain of %d routers with Open vSwitch: %w", routers, err), c.Close())
		}
	}()
	left, err := o.host(c, "l", routers, rightDevice, mac(0, 0))
	if err != nil {
		return nil, err
	}
	right, err := o.host(c, "r", routers, leftDevice, mac(routers, 1))
	if err != nil {
		return nil, err
	}
	if err := o.vsctl(ctx, o.bridges(routers)...); err != nil {
		return nil, err
	}
	for i := range max(1, routers) {
		if err := o.flows(ctx, bridge(routers, i), flowsOf(i, routers)); err != nil {
			return nil, err
		}
	}
	c.Left, c.Right = ends(left, right, routers)
	// A host without neighbours to ask: bridges that route do not answer ARP.
	if err := in(left, func() error { return ovsHost(rightDevice, 0, 0, routers) }); err != nil {
		return nil, err
	}
	if err := in(right, func() error { return ovsHost(leftDevice, routers, 1, routers) }); err != nil {
		return nil, err
	}
	return c, nil
}

// host makes a namespace with a veth whose other end is in Open vSwitch's.
func (o *ovs) host(c *Chain, side string, routers int, device string, address net.HardwareAddr) (*os.File, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	c.undo.push(ns.Close)
	err = in(ns, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: device, HardwareAddr: address})
		veth.PeerName, veth.PeerNamespace = ovsPort(side, routers), netlink.NsFd(o.ns.Fd())
		return netlink.LinkAdd(veth)
	})
	if err == nil {
		err = in(o.ns, func() error {
			l, err := netlink.LinkByName(ovsPort(side, routers))
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("make a host: %w", err)
	}
	// A packet socket hands over frames whose checksum was left to a NIC that there is none of.
	return ns, vnet.SetOffload(ns, device, vnet.Checksum, false)
}

func ovsHost(device string, link, end, routers int) error {
	if err := plainInterface(device, link, end); err != nil {
		return err
	}
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	next := address(link, 1-end)
	to := subnet(routers)
	if end == 1 {
		to = subnet(0)
	}
	if routers > 0 {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: next.AsSlice()}); err != nil {
			return err
		}
	}
	return netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: next.AsSlice(), HardwareAddr: mac(link, 1-end),
	})
}

func ovsPort(side string, routers int) string { return fmt.Sprintf("c%d%s", routers, side) }

func bridge(routers, i int) string { return fmt.Sprintf("c%db%d", routers, i) }

// The numbers of a bridge's ports.
const (
	leftPort  = 1
	rightPort = 2
)

// bridges are the words for ovs-vsctl. A chain of no routers is one bridge.
func (o *ovs) bridges(routers int) []string {
	var words []string
	say := func(format string, args ...any) {
		words = append(words, strings.Fields("-- "+fmt.Sprintf(format, args...))...)
	}
	port := func(bridge, name string, number int) {
		say("add-port %s %s", bridge, name)
		say("set Interface %s ofport_request=%d", name, number)
	}
	patch := func(bridge, name, peer string, number int) {
		port(bridge, name, number)
		say("set Interface %s type=patch options:peer=%s", name, peer)
	}
	last := max(1, routers) - 1
	for i := range last + 1 {
		name := bridge(routers, i)
		say("add-br %s", name)
		say("set Bridge %s datapath_type=netdev fail-mode=secure", name)
		if i == 0 {
			port(name, ovsPort("l", routers), leftPort)
		} else {
			patch(name, name+"l", bridge(routers, i-1)+"r", leftPort)
		}
		if i == last {
			port(name, ovsPort("r", routers), rightPort)
		} else {
			patch(name, name+"r", bridge(routers, i+1)+"l", rightPort)
		}
	}
	return words[1:]
}

// flowsOf makes bridge i router number i+1.
func flowsOf(i, routers int) []string {
	if routers == 0 {
		return []string{
			fmt.Sprintf("in_port=%d actions=output:%d", leftPort, rightPort),
			fmt.Sprintf("in_port=%d actions=output:%d", rightPort, leftPort),
		}
	}
	const flow = "ip,nw_dst=%s,dl_dst=%s actions=dec_ttl,mod_dl_src:%s,mod_dl_dst:%s,output:%d"
	return []string{
		fmt.Sprintf(flow, subnet(routers), mac(i, 1), mac(i+1, 0), mac(i+1, 1), rightPort),
		fmt.Sprintf(flow, subnet(0), mac(i+1, 0), mac(i, 1), mac(i, 0), leftPort),
	}
}

// appears waits for a socket of a daemon.
func appears(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", socket, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// flows gives a bridge its flows. Its management socket is there when it is.
func (o *ovs) flows(ctx context.Context, bridge string, flows []string) error {
	socket := filepath.Join(o.dir, bridge+".mgmt")
	if err := appears(ctx, socket); err != nil {
		return err
	}
	cmd := o.command(ctx, "ovs-ofctl", "add-flows", "unix:"+socket, "-")
	cmd.Stdin = strings.NewReader(strings.Join(flows, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("add flows to %s: %w: %s", bridge, err, lastLine(bytes.TrimSpace(out)))
	}
	return nil
}
