// Package outside connects slivers with what is outside of all slices, through the machine that they run on: a pair of
// devices for each sliver, from the sliver's network namespace to the machine's, and one table of nftables. A sliver
// with leave to do so makes connections by the machine's addresses (masquerading); a port of these that is reserved
// for a sliver leads to it.
//
// What is there is read from the devices: each has an alias that says whose it is and what it has. The table follows
// from that, and its rules are replaced as a whole, in one transaction, whenever they are to be others. It names the
// server that has it, by its state directory: one of the servers of a machine has the outside.
//
// IPv6 is as IPv4, where the machine has a default route of it (whyNoIPv6).
package outside

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/claims"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Inner is the interface's name in the sliver.
const Inner = slice.OutsideInterface

// Node is a sliver that reaches the outside, or is reached from there.
type Node struct {
	Owner  string // names the sliver on this machine; without spaces
	Digest string // of what the caller wants; Nodes gives it back
	NAT    bool   // it may make connections
	Ports  []slice.HostPort
	Bind   slice.Ports // its processes reserve those that they bind; none, if First is 0
	Rate   unit.Rate   // of what it sends, and of what it gets; 0: no limit
	// NoIPv6 says why it has no IPv6 there; empty where it has. Only Nodes gives it.
	NoIPv6 string
}

// Counts is what was dropped of a sliver's traffic, since it was connected.
type Counts struct {
	Refused uint64 // packets that would have begun a connection, beyond what a sliver may have of them
	Dropped uint64 // packets that it sent faster than its rate
}

func (n *Node) binds() bool { return n.Bind != (slice.Ports{}) }

// Gateway is the machine's part. Its methods may be called from many goroutines.
type Gateway struct {
	saved   saved
	id      string // of the state directory
	tracked func() int
	log     *slog.Logger
	pins    string // directory of a bpf file system
	tell    func()

	mu      sync.Mutex     // guards devices, the table and what follows
	written string         // what the table is, as this process wrote it; "": not known
	holds   map[string]int // rules of its chains, and elements of its sets
	adopted bool           // what an earlier process left half done has been done
	// Ports were released, and connections to them may go on.
	released bool
	failed   string                  // what Nodes logged last
	claims   *claims.Claims          // nil: not open
	unread   string                  // what Bound logged last
	binders  map[string]claims.NetNS // of owners that may claim ports, as seen last
}

// New gives the gateway of the machine whose network namespace this process is in. What is to be restored is kept in
// the directory, which a reboot empties, and what outlives this process in the bpf file system bpf below it. bound is
// called soon after a process of a sliver has bound a port that it may reserve so: Bound lists it then. It must not
// wait, and may be nil as log may be.
func New(stateDir string, bound func(), log *slog.Logger) *Gateway {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if bound == nil {
		bound = func() {}
	}
	return &Gateway{
		saved: savedIn(stateDir), id: idOf(stateDir), tracked: trackedConnections, log: log,
		pins: filepath.Join(stateDir, "bpf", "claims"), tell: bound,
	}
}

// idOf is a short name of a state directory, as in the names of host networks' devices.
func idOf(stateDir string) string {
	if path, err := filepath.Abs(stateDir); err == nil {
		stateDir = path
	}
	sum := sha256.Sum256([]byte(stateDir))
	return hex.EncodeToString(sum[:4])
}

// Set connects a sliver, whose first process is given. If it is connected, it keeps its device where only ports differ:
// connections to ports that it no longer has end then. Where NAT differs, all end.
func (g *Gateway) Set(ctx context.Context, pid int, n Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.set(ctx, pid, n); err != nil {
		return fmt.Errorf("connect %s with the outside: %w", n.Owner, err)
	}
	return nil
}

func (g *Gateway) set(ctx context.Context, pid int, n Node) (err error) {
	links, err := outsideLinks()
	if err != nil {
		return err
	}
	if other, err := g.otherServer(links); err != nil {
		return err
	} else if other != "" {
		return errOther(other)
	}
	there, err := g.devices()
	if err != nil {
		return err
	}
	noIPv6, err := whyNoIPv6()
	if err != nil {
		return err
	}
	var left, older []device
	for _, d := range there {
		if d.node.Owner == n.Owner {
			older = append(older, d)
		} else {
			left = append(left, d)
		}
	}
	kept := len(older) == 1 && older[0].node.NAT == n.NAT
	var has []slice.HostPort
	if kept {
		has = older[0].node.Ports
	}
	if err := unused(ctx, left, has, n.Ports); err != nil {
		return err
	}
	if kept {
		return g.amend(older[0], pid, n, noIPv6 == "")
	}
	for _, d := range older {
		if err := d.delete(); err != nil {
			return err
		}
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	d := device{index: freeIndex(left), node: n, ipv6: noIPv6 == ""}
	if err := g.release(d, left); err != nil {
		return err
	}
	steps.Push(g.sync)
	if err := g.prepare(append(slices.Clone(left), d)); err != nil {
		return err
	}
	if err := d.make(pid, &steps); err != nil {
		return err
	}
	if err := g.sync(); err != nil || !n.binds() {
		return err
	}
	return g.letBind(pid, d)
}

// amend gives a connected sliver other ports, another rate, or IPv6. Connections to ports that it keeps go on. The
// machine's end comes first: what goes wrong in the sliver, whose user may see to that, leaves no rule as it was.
func (g *Gateway) amend(d device, pid int, n Node, ipv6 bool) error {
	had := d
	d.node, d.ipv6 = n, ipv6
	g.released = g.released || had.releases(n.Ports)
	if err := d.mark(); err != nil {
		return err
	}
	err := g.amendMachine()
	if err == nil {
		err = g.amendEnds(had, d, pid)
	}
	if err != nil { // it is tried again
		d.node.Rate, d.node.Digest, d.ipv6 = had.node.Rate, had.node.Digest, had.ipv6
		err = errors.Join(err, d.mark())
	}
	return err
}

// amendMachine makes the rules what devices are marked with, and ends connections to ports that were released.
func (g *Gateway) amendMachine() error {
	if err := g.sync(); err != nil || !g.released {
		return err
	}
	all, err := g.devices()
	if err != nil {
		return err
	}
	if err := deleteUnreserved(all); err != nil {
		return err
	}
	g.released = false
	return nil
}

// amendEnds gives both ends of a device the rate and the addresses that it is to have.
func (g *Gateway) amendEnds(had, d device, pid int) error {
	if had.node.Rate != d.node.Rate {
		if err := d.shape(pid); err != nil {
			return err
		}
	}
	if d.ipv6 && !had.ipv6 {
		if err := d.addIPv6(pid); err != nil {
			return err
		}
	}
	if had.ipv6 && !d.ipv6 {
		if err := d.removeIPv6(pid); err != nil {
			return err
		}
	}
	if !d.node.binds() {
		return nil
	}
	return g.letBind(pid, d)
}

// releases reports whether a device has ports that are not among these.
func (d device) releases(keeps []slice.HostPort) bool {
	return slices.ContainsFunc(d.node.Ports, func(p slice.HostPort) bool { return !slices.Contains(keeps, p) })
}

// prepare makes the rules of devices before the devices: no sliver sends past them.
func (g *Gateway) prepare(all []device) error {
	out, err := exits()
	if err != nil {
		return err
	}
	if err := g.reserve(all); err != nil {
		return err
	}
	return g.guard(all, out)
}

// release makes sure that a new device's address has nothing of an older device with the same number, whose sliver may
// have taken it along when it ended: first the rules that lead to the address, then the connections.
func (g *Gateway) release(d device, others []device) error {
	if g.saved.exists() { // there may be a table
		out, err := exits()
		if err != nil {
			return err
		}
		r, err := g.wanted(others, out)
		if err == nil {
			err = g.write(r, "")
		}
		if err != nil {
			return err
		}
		t, err := readTable()
		if err == nil {
			err = t.forgetDevices(others)
		}
		if err != nil {
			return err
		}
	}
	return d.deleteConnections()
}

// unused makes sure that no other sliver has the ports, and no process of the machine those that the sliver does not
// have already: what began later must not keep it from having others.
func unused(ctx context.Context, others []device, has, ports []slice.HostPort) error {
	for _, p := range ports {
		for _, d := range others {
			if slices.Contains(d.node.Ports, p) {
				return fmt.Errorf("port %s is reserved for %s", p, d.node.Owner)
			}
		}
		if !slices.Contains(has, p) && InUse(ctx, p) {
			return fmt.Errorf("port %s of this machine is in use by one of its own processes (`ss -lntup` "+
				"shows by which): end it, or reserve another port", p)
		}
	}
	return nil
}

// InUse reports whether a process of the machine has the port.
func InUse(ctx context.Context, p slice.HostPort) bool {
	at := fmt.Sprintf(":%d", p.Port)
	for _, version := range []string{"4", "6"} {
		var err error
		if p.Protocol == slice.UDP {
			var c net.PacketConn
			if c, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp"+version, at); err == nil {
				err = c.Close()
			}
		} else {
			var l net.Listener
			if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp"+version, at); err == nil {
				err = l.Close()
			}
		}
		if errors.Is(err, unix.EADDRINUSE) {
			return true
		}
	}
	return false
}

// Delete takes a sliver's connection away. It is no error if it has none.
func (g *Gateway) Delete(ctx context.Context, owner string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there, err := g.devices()
	for _, d := range there {
		if d.node.Owner == owner {
			err = errors.Join(err, d.delete())
		}
	}
	if err = errors.Join(err, g.sync()); err != nil {
		return fmt.Errorf("disconnect %s from the outside: %w", owner, err)
	}
	return nil
}

// Nodes lists what is connected. It deletes what was left half made, and makes the table what it is to be: a sliver
// that ended took its device along. If the table cannot be made so, that is logged, and concerns no other slice: Set
// and Delete fail with the reason.
func (g *Gateway) Nodes(ctx context.Context) ([]Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there, err := g.devices()
	if err != nil {
		return nil, fmt.Errorf("read connections with the outside: %w", err)
	}
	if err := g.sync(); err == nil {
		g.failed = ""
	} else if err.Error() != g.failed { // once, not with every observation
		g.failed = err.Error()
		g.log.Error("connections with the outside are not what they are to be", "error", err)
	}
	noIPv6, err := whyNoIPv6()
	if err != nil {
		return nil, err
	}
	all := make([]Node, len(there))
	for i, d := range there {
		all[i] = d.node
		all[i].NoIPv6 = noIPv6
		if d.ipv6 != (noIPv6 == "") {
			all[i].Digest = "" // it is to be set again: the machine has got IPv6, or lost it
		}
	}
	return all, nil
}

// Counts gives what was dropped of slivers' traffic, by owner.
func (g *Gateway) Counts(ctx context.Context) (map[string]Counts, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there, err := g.devices()
	if err != nil || len(there) == 0 {
		return nil, err
	}
	t, err := readTable()
	if err != nil {
		return nil, err
	}
	refused, err := t.counts(refusedSet)
	if err != nil {
		return nil, err
	}
	dropped, err := t.counts(droppedSet)
	if err != nil {
		return nil, err
	}
	all := map[string]Counts{}
	for _, d := range there {
		all[d.node.Owner] = Counts{
			Refused: refused[d.name()].Packets, Dropped: dropped[d.name()].Packets,
		}
	}
	return all, nil
}

// sync makes the table and the machine's settings what the devices ask for, also where somebody else changed them.
func (g *Gateway) sync() error {
	there, err := g.devices()
	if err != nil {
		return err
	}
	if len(there) == 0 && g.written == "" && !g.saved.exists() {
		return nil // as most machines are, always
	}
	if len(there) == 0 {
		return g.leave()
	}
	out, err := exits()
	if err != nil {
		return err
	}
	if err := g.reserve(there); err != nil {
		return err
	}
	ipv6 := slices.ContainsFunc(there, func(d device) bool { return d.ipv6 })
	if ipv6 {
		if err := g.saved.noteIPv6(); err != nil {
			return err
		}
	}
	if err := g.guard(there, out); err != nil {
		return err
	}
	if err := g.adopt(there); err != nil {
		return err
	}
	if ipv6 { // last: from now on the machine forwards what the table lets pass
		if err := g.saved.forwardIPv6(); err != nil {
			return err
		}
	}
	return write(forwarding, "1")
}

// leave removes the table, and makes the machine's settings what they were. What another server has made since stays.
func (g *Gateway) leave() error {
	g.written = ""
	t, err := readTable()
	if err != nil {
		return err
	}
	if id := t.owner(); id == "" || id == g.id {
		err = t.remove()
	}
	return errors.Join(err, g.saved.restore(g.log))
}

// adopt deletes, once, the connections that an earlier process may have left as it ended when ports were released.
func (g *Gateway) adopt(there []device) error {
	if g.adopted {
		return nil
	}
	if err := deleteUnreserved(there); err != nil {
		return err
	}
	g.adopted = true
	return nil
}

// reserve keeps ports from processes of the machine. The first time, it notes what the machine's settings are.
func (g *Gateway) reserve(there []device) error {
	if !g.saved.exists() {
		if err := g.note(there); err != nil {
			return err
		}
	}
	return g.saved.setReserved(portsOf(there))
}

// note writes into the file what the machine's settings are, before they change. If the table of this server is there,
// they have changed: the file was lost, and what can be told of them is taken from the table.
func (g *Gateway) note(there []device) error {
	was, err := currentSettings()
	if err != nil {
		return err
	}
	t, err := readTable()
	if err != nil {
		return err
	}
	lost := t.owner() == g.id
	if lost {
		guarded, err := t.guards()
		if err != nil {
			return err
		}
		if err := was.before(guarded, portsOf(there)); err != nil {
			return err
		}
	}
	if err := g.saved.save(was); err != nil {
		return err
	}
	switch {
	case lost:
		g.log.Warn("the file of what this machine's settings were before nodes reached the outside is lost: "+
			"it is made again from nftables' table, and after the last such node the settings become what "+
			"it says; net.ipv4.conf.all.accept_redirects and accept_ra of devices are not known",
			"file", g.saved.path, "table", tableName, "ip_forward", was.Forwarding)
	case was.Forwarding == "0":
		g.log.Info("this machine forwarded nothing: while nodes reach the outside, it forwards for them " +
			"alone, and not for programs that start later (Docker, libvirt)")
	}
	return nil
}

// guard makes the table what these devices ask for, which need not be there yet.
func (g *Gateway) guard(there []device, out []exit) error {
	r, err := g.wanted(there, out)
	if err != nil {
		return err
	}
	want := fmt.Sprint(r)
	if want == g.written {
		t, err := readTable()
		if err != nil || t.holds(g.holds) {
			return err
		}
	}
	return g.write(r, want)
}

// wanted is what the table is to be made from. Where it cannot be read what the machine forwarded before, there are no
// rules: they might let others through.
func (g *Gateway) wanted(there []device, out []exit) (rules, error) {
	guards, err := g.saved.guards()
	return rules{
		owner: g.id, devices: there, exits: out, guard: guards,
		most: connectionsEach(g.tracked(), len(there)),
	}, err
}

func (g *Gateway) write(r rules, want string) error {
	g.written = ""
	t, err := readTable()
	if err != nil {
		return err
	}
	if id := t.owner(); id != "" && id != g.id {
		return errOther(id)
	}
	if g.holds, err = t.write(r); err == nil {
		g.written = want
	}
	return err
}

// Remove removes everything that a gateway made on the machine.
func Remove(stateDir string) error {
	g := New(stateDir, nil, nil)
	there, err := g.devices()
	for _, d := range there {
		err = errors.Join(err, d.delete())
	}
	if err = errors.Join(err, g.sync(), g.endClaims()); err != nil {
		return fmt.Errorf("remove connections with the outside: %w", err)
	}
	return nil
}

// in calls f in the network namespace of a process.
func in(pid int, f func() error) error { return netns.Do(netns.Path(pid), f) }
