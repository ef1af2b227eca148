package wire

import (
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/mapmem"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/slice"
)

// apply makes what a link is made of, out of whatever is there of it. Its ends must be wired so, or to nothing. What is
// new is made beside the path that frames take, then the records of both ends change, then what is not needed goes: so
// no frame meets half of it, and what a process that died left is repaired by the next call.
func (s *HostNetwork) apply(l wiring.Link) error {
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
	if err := s.lowerQueues(r, l, want); err != nil {
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
func (s *HostNetwork) limitSegments(r *reading, l wiring.Link, have wiring.Layout) error {
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

func (s *HostNetwork) setSegments(port device, single bool) error {
	err := s.inside(port, func(c *conn) error { return ignoreGone(c.change(port.peer, segments(single))) })
	if err != nil {
		return fmt.Errorf("limit segments at the other end of %s: %w", port.name, err)
	}
	return nil
}

// segments bounds for how many frames a super-frame may stand that leaves a device: it is cut otherwise.
func segments(single bool) rtnl.Attr {
	const most = 65535 // the kernel's default, GSO_MAX_SEGS
	if single {
		return rtnl.U32(unix.IFLA_GSO_MAX_SEGS, 1)
	}
	return rtnl.U32(unix.IFLA_GSO_MAX_SEGS, most)
}

// makePairs makes the queue devices that are not there, with their qdiscs. What is there of that name and is none is
// deleted.
func (s *HostNetwork) makePairs(r *reading, l wiring.Link, have, want wiring.Layout) error {
	for q, other := range want.Pairs {
		if have.Pairs[q] == other {
			if err := s.cutOrNot(r, have, want, q, other); err != nil {
				return err
			}
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

// cutOrNot makes queue devices that are there cut super-frames, or leave them as they are.
func (s *HostNetwork) cutOrNot(r *reading, have, want wiring.Layout, devices ...string) error {
	for _, name := range devices {
		if have.Plain[name] == want.Plain[name] {
			continue
		}
		if err := s.cut(r.byName[name], want.Plain[name]); err != nil {
			return err
		}
	}
	return nil
}

// cut makes a queue device cut super-frames, or not. The bound of segments is set last: by it, the device is known to
// cut. It is not enough by itself: of super-frames that came out of a tunnel, the kernel does not know how many
// segments they have.
func (s *HostNetwork) cut(d device, on bool) error {
	err := netns.In(s.ns, func() error { return setSegmentation(d.name, !on) })
	if err == nil {
		err = s.nl.change(d.index, segments(on))
	}
	if err != nil {
		return fmt.Errorf("cut super-frames at queue device %s: %w", d.name, err)
	}
	return nil
}

// setSegmentation switches offloads of a device in the thread's namespace: of segmentation, and of checksums, which
// are finished in what leaves a device without it.
func setSegmentation(device string, on bool) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	known, err := e.FeatureNames(device)
	if err != nil {
		return err
	}
	change := make(map[string]bool)
	for name := range known {
		if strings.HasPrefix(name, "tx-") && strings.HasSuffix(name, "-segmentation") &&
			name != "tx-generic-segmentation" {
			change[name] = on
		}
	}
	change[checksumOffload] = on
	return e.Change(device, change)
}

// checksumOffload is a veth device's feature, by its name in ethtool.
const checksumOffload = "tx-checksum-ip-generic"

// finishChecksums makes a device in the thread's namespace leave no checksum to the devices behind it. Without that,
// the kernel lets it have no super-frames either.
func finishChecksums(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(device, map[string]bool{checksumOffload: false})
}

func (s *HostNetwork) makePair(r *reading, l wiring.Link, q, other string, want wiring.Layout) (err error) {
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
			record := datapath.Port{MTU: v.mtu, Mode: datapath.Peer, Peer: end.port.index}
			if err := s.own(d.index, record); err != nil {
				return err
			}
		}
		if err := s.nl.setTree(d, wiring.Tree{}, want.Trees[end.name]); err != nil {
			return err
		}
		d.mark = mark{role: end.role, owner: end.port.mark.owner}
		if want.Plain[d.name] {
			if err := s.cut(d, true); err != nil {
				return err
			}
		}
		if err := s.nl.changeUp(d.index, true, rtnl.String(unix.IFLA_IFALIAS, d.mark.String())); err != nil {
			return err
		}
		if err := s.read(r, d); err != nil {
			return err
		}
	}
	return s.nl.awaitCarrier(q, other)
}

// plugIn puts devices into the bridges that they are to be in, after others left: two ways would double frames.
func (s *HostNetwork) plugIn(r *reading, l wiring.Link, want wiring.Layout) error {
	if l.Switch == "" {
		return nil
	}
	bridge, err := s.nl.device(l.Switch)
	if err != nil {
		return err
	}
	for _, name := range l.Devices() {
		if d, there := r.byName[name]; there && want.Switches[name] == "" && d.master != 0 {
			if err := s.nl.setMaster(d.index, 0); err != nil {
				return err
			}
			r.setMaster(name, 0)
		}
	}
	for name := range want.Switches {
		if err := s.nl.plugIn(r.byName[name], bridge.index, r.byName[l.A.Port].isIsolated()); err != nil {
			return err
		}
		r.setMaster(name, bridge.index)
	}
	return nil
}

// lowerQueues takes queues that will go away from the choice of packet programs, before their classes go; setRecords
// adds those that have come, after their classes. So no frame names a class that is not there. (One that netem delays
// meanwhile does: it gets the default class.)
func (s *HostNetwork) lowerQueues(r *reading, l wiring.Link, want wiring.Layout) error {
	lowered := false
	for _, name := range []string{l.A.Port, l.B.Port} {
		d, there := r.byName[name]
		record := r.records[d.index]
		if !there || record.Queues <= want.Records[name].Queues {
			continue
		}
		record.Queues = want.Records[name].Queues
		if err := s.forwarder.Set(d.index, record); err != nil {
			return err
		}
		r.records[d.index] = record
		lowered = true
	}
	if lowered {
		// Some kernels do not offer it (nohz_full): then the frames that programs have at that moment get the
		// default class.
		_ = mapmem.WaitForPrograms()
	}
	return nil
}

// setRecords directs frames: first at queue devices, then at the ends of the link.
func (s *HostNetwork) setRecords(r *reading, l wiring.Link, want wiring.Layout) error {
	names := []string{wiring.QueueName(l.A.Port), wiring.QueueName(l.B.Port), l.A.Port, l.B.Port}
	for _, name := range names {
		record, wanted := want.Records[name]
		d, there := r.byName[name]
		if !wanted || !there {
			continue
		}
		full := r.records[d.index]
		full.Mode, full.Peer = modes[record.Mode], r.byName[record.Peer].index
		full.Plain = r.byName[record.Plain].index
		full.Classified, full.Queues = len(want.Rules[name]) > 0, record.Queues
		full.Reserves = record.Reserves
		full.Police = datapath.Policer(want.Policers[name])
		if full == r.records[d.index] {
			continue
		}
		if err := s.forwarder.Set(d.index, full); err != nil {
			return err
		}
		r.records[d.index] = full
	}
	return nil
}

var modes = map[wiring.Mode]datapath.Mode{
	wiring.ToNothing: datapath.None, wiring.ToSwitch: datapath.Kernel,
	wiring.ToPeer: datapath.Peer, wiring.ToQueue: datapath.Queue,
}

// setRules writes rules: those that are wanted before records say that there are some, the deletion of others after.
func (s *HostNetwork) setRules(r *reading, want wiring.Layout, wanted bool) error {
	for name, d := range r.byName {
		rules := want.Rules[name]
		if (len(rules) > 0) != wanted || len(rules) == 0 && len(r.rules[d.index]) == 0 {
			continue
		}
		if err := s.forwarder.SetRules(d.index, rulesOut(rules)); err != nil {
			return err
		}
	}
	return nil
}

// clear removes what the link does not need any more: qdiscs first, so that nothing waits there, then queue devices.
func (s *HostNetwork) clear(r *reading, l wiring.Link, have, want wiring.Layout) error {
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
