package wire

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/slice"
)

// Direction is one of a link's, seen from an end of it.
type Direction bool

// The directions. For a cable, the node is the switch at that end.
const (
	FromNode Direction = false // frames that leave the node into the link
	ToNode   Direction = true
)

func (d Direction) String() string {
	if d == ToNode {
		return "to"
	}
	return "from"
}

// Treat makes a link's treatment of frames be as the link says. Its ends must be wired so. What changes without another qdisc or
// class being needed changes in place, and the frames that wait stay; when a queue goes, what waits in it is lost.
func (s *Substrate) Treat(ctx context.Context, l wiring.Link) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	now, err := s.linkOf(l.A.Port)
	if err == nil && !now.sameEnds(l) {
		err = ErrNotWired
	}
	if err == nil {
		err = s.apply(l)
	}
	if err != nil {
		return fmt.Errorf("treat frames at port %s: %w", l.A.Port, err)
	}
	return nil
}

// Shape sets what happens to frames in one direction of a port or cable; the zero Shape leaves them alone. The direction from
// the node is that of the link, so the port must be wired.
func (s *Substrate) Shape(ctx context.Context, port string, dir Direction, shape slice.Shape) error {
	err := s.change(ctx, port, func(l *wiring.Link) error {
		if (dir == FromNode) == (l.A.Port == port) {
			l.A.Shape = shape
		} else {
			l.B.Shape = shape
		}
		return checkShape(shape)
	})
	if errors.Is(err, ErrNotWired) && shape.IsZero() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shape frames %s the node of port %s: %w", dir, port, err)
	}
	return nil
}

// Reinject makes what comes to a port's node out of a queue, or from a switch, enter the data path again, so that a router
// there need not be woken for frames that only pass; or undoes that. Two joined ports do this together. Shapes stay what they are.
// Between switches there are no node's frames: at a cable, nothing changes.
func (s *Substrate) Reinject(ctx context.Context, port string, on bool) error {
	err := s.change(ctx, port, func(l *wiring.Link) error {
		l.Reinject = on && !l.Cable
		return nil
	})
	if errors.Is(err, ErrNotWired) && !on {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reinject frames to port %s: %w", port, err)
	}
	return nil
}

// change lets edit change the link of a port.
func (s *Substrate) change(ctx context.Context, port string, edit func(*wiring.Link) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	now, err := s.linkOf(port)
	if err != nil {
		return err
	}
	l := now.Link
	if err := edit(&l); err != nil {
		return err
	}
	if l.Layout().Digest() == now.layout.Digest() {
		return nil
	}
	return s.apply(l)
}

// observed is a link as it was read.
type observed struct {
	wiring.Link
	layout wiring.Layout
}

func (o observed) sameEnds(l wiring.Link) bool {
	same := o.A.Port == l.A.Port && o.B.Port == l.B.Port || o.A.Port == l.B.Port && o.B.Port == l.A.Port
	return same && o.Switch == l.Switch && o.Cable == l.Cable
}

// linkOf reads the link of a port or a cable's end. The error is ErrNotWired where it has none.
func (s *Substrate) linkOf(port string) (o observed, err error) {
	d, err := s.nl.device(port)
	if err != nil {
		return o, err
	}
	r := newReading()
	if err := s.read(r, d); err != nil {
		return o, err
	}
	if d.mark.role != roleCable && d.master == 0 && !joined(r.records[d.index]) {
		return o, ErrNotWired
	}
	next := []int{d.peer, d.master}
	if d.mark.role != roleCable {
		next = []int{d.master, r.records[d.index].Peer}
	}
	for range 3 { // the peer, its other end, and what that leads to
		if next, err = s.readNext(r, next); err != nil {
			return o, err
		}
	}
	l, ok := r.link(d)
	if !ok {
		return o, ErrNotWired
	}
	o.layout = r.layout(l)
	o.Link = l.Observed(o.layout)
	return o, nil
}

// readNext reads the devices with these indices that were not read yet. It gives the indices of the devices to which
// those lead: the other ends and the peers of queue devices, the switches of members.
func (s *Substrate) readNext(r *reading, indices []int) (next []int, err error) {
	for _, index := range indices {
		if _, known := r.devices[index]; known || index == 0 {
			continue
		}
		far, err := s.nl.deviceAt(index)
		if errors.Is(err, ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.read(r, far); err != nil {
			return nil, err
		}
		switch far.mark.role {
		case roleQueue:
			next = append(next, far.peer, r.records[index].Peer)
		case roleMember:
			next = append(next, far.master)
		default: // leads to nothing else of the link
		}
	}
	return next, nil
}

// apply makes what a link is made of, out of whatever is there of it. Its ends must be wired so, or to nothing. What is new is made
// beside the path that frames take, then the records of both ends change, then what is not needed goes: so no frame meets half
// of it, and what a process that died left is repaired by the next call.
func (s *Substrate) apply(l wiring.Link) error {
	want := l.Layout()
	r, err := s.readDevices(l.Devices())
	if err != nil {
		return err
	}
	for _, port := range []string{l.A.Port, l.B.Port} {
		if _, there := r.byName[port]; port != "" && !there {
			return fmt.Errorf("find device %s: %w", port, ErrNoDevice)
		}
	}
	have := r.layout(l)
	if err := s.limitSegments(r, l, have); err != nil {
		return err
	}
	if err := s.makePairs(r, l, have, want); err != nil {
		return err
	}
	for name, tree := range want.Trees {
		if err := s.nl.setTree(r.byName[name], r.trees[r.byName[name].index], tree); err != nil {
			return err
		}
	}
	if err := s.setRules(r, want, true); err != nil {
		return err
	}
	if err := s.plugIn(r, l, want); err != nil {
		return err
	}
	if err := s.setRecords(r, l, want); err != nil {
		return err
	}
	if err := s.setRules(r, want, false); err != nil {
		return err
	}
	return s.clear(r, l, have, want)
}

// limitSegments makes nodes send single frames, where the link takes each frame for one: see wiring.Single.
func (s *Substrate) limitSegments(r *reading, l wiring.Link, have wiring.Layout) error {
	now := l.Observed(have)
	for _, end := range []struct {
		port      string
		was, want slice.Shape
	}{{l.A.Port, now.A.Shape, l.A.Shape}, {l.B.Port, now.B.Shape, l.B.Shape}} {
		if end.port == "" || wiring.Single(end.was) == wiring.Single(end.want) {
			continue
		}
		if err := s.setSegments(r.byName[end.port], wiring.Single(end.want)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Substrate) setSegments(port device, single bool) error {
	segments := uint32(65535) // the kernel's default, GSO_MAX_SEGS
	if single {
		segments = 1
	}
	err := s.inside(port, func(c *conn) error {
		return ignoreGone(c.change(port.peer, rtnl.U32(unix.IFLA_GSO_MAX_SEGS, segments)))
	})
	if err != nil {
		return fmt.Errorf("limit segments at the other end of %s: %w", port.name, err)
	}
	return nil
}

// inside calls f where the port's other end is, if that still exists.
func (s *Substrate) inside(port device, f func(*conn) error) error {
	if port.mark.role != rolePort {
		return nil
	}
	ns := s.host
	if port.mark.pid != 0 {
		var err error
		ns, err = netns.Open(netns.Path(port.mark.pid))
		if errors.Is(err, netns.ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
	}
	if i, err := inode(ns); err != nil || i != port.mark.ns {
		return err
	}
	c, err := dial(ns)
	if err != nil {
		return err
	}
	defer c.close()
	return f(c)
}

// makePairs makes the queue devices that are not there, with their qdiscs. What is there of that name and is none is deleted.
func (s *Substrate) makePairs(r *reading, l wiring.Link, have, want wiring.Layout) error {
	for q, other := range want.Pairs {
		if have.Pairs[q] == other {
			continue
		}
		if err := s.deleteNamed(q, other); err != nil { // half made, or of another kind of link
			return err
		}
		r.drop(q)
		r.drop(other)
		if err := s.makePair(r, l, q, other, want); err != nil {
			return fmt.Errorf("make queue device %s: %w", q, err)
		}
	}
	return nil
}

func (s *Substrate) makePair(r *reading, l wiring.Link, q, other string, want wiring.Layout) (err error) {
	var steps undo.Steps
	defer steps.OnError(&err)
	a, b := r.byName[l.A.Port], r.byName[l.B.Port] // b is empty at a switch
	if q != wiring.QueueName(a.name) {
		a, b = b, a
	}
	v := veth{name: q, peer: other, mtu: max(a.mtu, b.mtu), group: a.group, twins: l.Switch == ""}
	steps.Push(func() error { return s.deleteNamed(q) })
	if _, err := s.addVeth(v); err != nil {
		return err
	}
	for _, end := range []struct {
		name string
		port device
		role role
	}{{other, b, roleQueue}, {q, a, roleQueue}} { // q last: its mark says that both are complete
		if end.name == other && l.Switch != "" {
			end.port, end.role = a, roleMember
		}
		d, err := s.nl.device(end.name)
		if err != nil {
			return err
		}
		if _, recorded := want.Records[end.name]; recorded {
			if err := s.own(d.index, datapath.Port{MTU: v.mtu, Mode: datapath.Peer, Peer: end.port.index}); err != nil {
				return err
			}
		}
		if err := s.nl.setTree(d, wiring.Tree{}, want.Trees[end.name]); err != nil {
			return err
		}
		d.mark = mark{role: end.role, owner: end.port.mark.owner}
		if err := s.nl.changeUp(d.index, true, rtnl.String(unix.IFLA_IFALIAS, d.mark.String())); err != nil {
			return err
		}
		if err := s.read(r, d); err != nil {
			return err
		}
	}
	return nil
}

// plugIn puts devices into the bridges that they are to be in, after others left: two ways would double frames.
func (s *Substrate) plugIn(r *reading, l wiring.Link, want wiring.Layout) error {
	if l.Switch == "" {
		return nil
	}
	bridge, err := s.nl.device(l.Switch)
	if err != nil {
		return err
	}
	isolated := r.byName[l.A.Port].mark.isolated
	for _, name := range l.Devices() {
		if d, there := r.byName[name]; there && want.Switches[name] == "" && d.master != 0 {
			if err := s.nl.setMaster(d.index, 0); err != nil {
				return err
			}
			r.setMaster(name, 0)
		}
	}
	for name := range want.Switches {
		d := r.byName[name]
		led := r.recordOf(l.A.Port) == want.Records[l.A.Port] // if not, whether it is isolated is not certain
		if d.master == bridge.index && (!isolated || led) {
			continue
		}
		if err := s.nl.plugIn(d, bridge.index, isolated); err != nil {
			return err
		}
		r.setMaster(name, bridge.index)
	}
	return nil
}

// setRecords directs frames: first at queue devices, then at the ends of the link.
func (s *Substrate) setRecords(r *reading, l wiring.Link, want wiring.Layout) error {
	names := []string{wiring.QueueName(l.A.Port), wiring.QueueName(l.B.Port), l.A.Port, l.B.Port}
	for _, name := range names {
		record, wanted := want.Records[name]
		d, there := r.byName[name]
		if !wanted || !there {
			continue
		}
		full := r.records[d.index]
		full.Mode, full.Peer = modes[record.Mode], r.byName[record.Peer].index
		full.Classified = len(want.Rules[name]) > 0
		if full == r.records[d.index] {
			continue
		}
		if err := s.data.Set(d.index, full); err != nil {
			return err
		}
		r.records[d.index] = full
	}
	return nil
}

var modes = map[wiring.Mode]datapath.Mode{
	wiring.ToNothing: datapath.None, wiring.ToSwitch: datapath.Kernel, wiring.ToPeer: datapath.Peer, wiring.ToQueue: datapath.Queue,
}

// setRules writes rules: those that are wanted before records say that there are some, the deletion of others after.
func (s *Substrate) setRules(r *reading, want wiring.Layout, wanted bool) error {
	for name, d := range r.byName {
		rules := want.Rules[name]
		if (len(rules) > 0) != wanted || len(rules) == 0 && len(r.rules[d.index]) == 0 {
			continue
		}
		if err := s.data.SetRules(d.index, rulesOut(rules)); err != nil {
			return err
		}
	}
	return nil
}

// rulesOut are rules as the data path has them.
func rulesOut(rules []wiring.Rule) []datapath.Rule {
	out := make([]datapath.Rule, len(rules))
	for i, r := range rules {
		out[i] = datapath.Rule{
			Class: wiring.HandleHTB | uint32(r.Class), DSCP: -1, Protocol: uint8(r.Protocol), Source: r.Src, Destination: r.Dst,
			SourcePorts: datapath.PortRange(r.SrcPort), DestinationPorts: datapath.PortRange(r.DstPort), AnyPort: datapath.PortRange(r.Port),
		}
		if r.DSCP != nil {
			out[i].DSCP = *r.DSCP
		}
	}
	return out
}

func rulesIn(rules []datapath.Rule) []wiring.Rule {
	in := make([]wiring.Rule, len(rules))
	for i, r := range rules {
		in[i] = wiring.Rule{Class: uint16(r.Class), Match: slice.Match{
			Protocol: int(r.Protocol), Src: r.Source, Dst: r.Destination,
			SrcPort: slice.Ports(r.SourcePorts), DstPort: slice.Ports(r.DestinationPorts), Port: slice.Ports(r.AnyPort),
		}}
		if r.DSCP >= 0 {
			in[i].DSCP = &r.DSCP
		}
	}
	return in
}

// clear removes what the link does not need any more: qdiscs first, so that nothing waits there, then queue devices.
func (s *Substrate) clear(r *reading, l wiring.Link, have, want wiring.Layout) error {
	var gone []string
	for q, other := range have.Pairs {
		if want.Pairs[q] != other && r.byName[q].name == q {
			gone = append(gone, q, other)
		}
	}
	if err := s.deleteNamed(gone...); err != nil {
		return err
	}
	for _, name := range gone {
		r.drop(name)
	}
	for _, name := range l.Devices() {
		d, there := r.byName[name]
		if _, wanted := want.Trees[name]; wanted || !there {
			continue
		}
		if err := s.nl.setTree(d, r.trees[d.index], wiring.Tree{}); err != nil {
			return err
		}
	}
	return nil
}

// checkShape refuses what is out of range, and what this kernel cannot do.
func checkShape(shape slice.Shape) error {
	if err := shape.Check(); err != nil {
		return err
	}
	if shape.NeedsNetem() {
		if err := HaveNetem(); err != nil {
			return err
		}
	}
	if shape.NeedsHTB() {
		return HaveHTB()
	}
	return nil
}
