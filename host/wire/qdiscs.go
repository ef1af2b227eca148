package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// qdisc is what a dump shows of one.
type qdisc struct {
	index          int
	handle, parent uint32
	kind           string
	options        []byte
}

func (q qdisc) isFIFO() bool { return q.kind == "pfifo" || q.kind == "bfifo" }

// qdiscs dumps the qdiscs that somebody made, by device.
func (c *conn) qdiscs() (map[int][]qdisc, error) {
	messages, err := c.dump(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, &nl.TcMsg{})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	all := map[int][]qdisc{}
	for _, message := range messages {
		q, err := parseQdisc(message)
		if err != nil {
			return nil, fmt.Errorf("list qdiscs: %w", err)
		}
		if q.parent != clsactParent && q.handle != 0 {
			all[q.index] = append(all[q.index], q)
		}
	}
	return all, nil
}

const clsactParent = 0xfffffff1 // TC_H_CLSACT: where programs are attached; no frame waits there

// tree reads the qdisc tree of one device.
func (c *conn) tree(index int) (wiring.Tree, error) {
	var some []qdisc
	add := func(handle, parent uint32) (bool, error) {
		q, ok, err := c.qdisc(index, handle, parent)
		if ok && q.handle != 0 {
			some = append(some, q)
		}
		return ok, err
	}
	for _, next := range []struct{ handle, parent uint32 }{{0, tcRoot}, {0, wiring.HandleNetem | 1}} {
		if ok, err := add(next.handle, next.parent); err != nil || !ok {
			break
		}
	}
	if len(some) == 0 {
		return wiring.Tree{}, nil
	}
	classes, err := c.classes(index)
	if err != nil {
		return wiring.Tree{}, err
	}
	for _, class := range classes { // by their classes: the kernel's answer to a handle does not say the parent
		if _, err := add(0, wiring.HandleHTB|uint32(class.Minor)); err != nil {
			return wiring.Tree{}, err
		}
	}
	return treeFrom(some, classes)
}

// qdisc reads one by its handle, or by where it is. ok is false where there is none but the default one.
func (c *conn) qdisc(index int, handle, parent uint32) (q qdisc, ok bool, err error) {
	// The kernel sends nothing of a default qdisc, so an acknowledgement is asked for.
	header := tcHeader(index, handle, parent).Serialize()
	request := rtnl.Request(unix.RTM_GETQDISC, unix.NLM_F_ACK|unix.NLM_F_ECHO, header)
	err = c.Ask(request, func(m rtnl.Message) (err error) {
		ok = true
		q, err = parseQdisc(slices.Clone(m.Data))
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return qdisc{}, false, nil
	}
	if err != nil {
		return qdisc{}, false, fmt.Errorf("read qdisc %x of device %d: %w", handle, index, err)
	}
	return q, ok, nil
}

func (c *conn) treeOf(index int, some []qdisc) (wiring.Tree, error) {
	var classes []wiring.Class
	if slices.ContainsFunc(some, func(q qdisc) bool { return q.kind == "htb" }) {
		var err error
		if classes, err = c.classes(index); err != nil {
			return wiring.Tree{}, err
		}
	}
	return treeFrom(some, classes)
}

// classes dumps the classes of a device, by minor number.
func (c *conn) classes(index int) ([]wiring.Class, error) {
	messages, err := c.dump(unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, tcHeader(index, 0, 0))
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("list classes of device %d: %w", index, err)
	}
	var all []wiring.Class
	for _, message := range messages {
		class, ok, err := parseClass(message)
		if err != nil {
			return nil, fmt.Errorf("list classes of device %d: %w", index, err)
		}
		if ok {
			all = append(all, class)
		}
	}
	slices.SortFunc(all, func(a, b wiring.Class) int { return int(a.Minor) - int(b.Minor) })
	return all, nil
}

// treeFrom puts a tree together. Qdiscs that setTree does not make are foreign.
func treeFrom(some []qdisc, classes []wiring.Class) (t wiring.Tree, err error) {
	for _, q := range some {
		switch {
		case q.kind == "netem" && q.handle == wiring.HandleNetem && q.parent == tcRoot:
			t.Netem, err = parseNetem(q.options)
		case q.kind == "htb" && q.handle == wiring.HandleHTB &&
			(q.parent == tcRoot || q.parent == wiring.HandleNetem|1):
			t.Default, err = parseHTB(q.options)
			t.Classes = classes
		case q.isFIFO() && q.parent>>16 == wiring.HandleHTB>>16:
		default:
			t.Foreign = true
		}
		if err != nil {
			return wiring.Tree{}, err
		}
	}
	for _, q := range some {
		at := slices.IndexFunc(t.Classes, func(c wiring.Class) bool {
			return wiring.HandleHTB|uint32(c.Minor) == q.parent
		})
		switch {
		case !q.isFIFO():
		case at < 0 || t.Classes[at].FIFO() != q.handle || len(q.options) < 4:
			t.Foreign = true
		case q.kind == "bfifo":
			t.Classes[at].Bytes = binary.NativeEndian.Uint32(q.options)
		default:
			t.Classes[at].Queue = binary.NativeEndian.Uint32(q.options)
		}
	}
	return t, nil
}

func parseQdisc(message []byte) (q qdisc, err error) {
	header := nl.DeserializeTcMsg(message)
	q = qdisc{index: int(header.Ifindex), handle: header.Handle, parent: header.Parent}
	attrs := rtnl.Attributes(message[header.Len():])
	for attrs.Next() {
		switch attrs.Kind {
		case nl.TCA_KIND:
			q.kind = attrs.Text()
		case nl.TCA_OPTIONS:
			q.options = attrs.Value
		}
	}
	return q, attrs.Err()
}

func parseNetem(options []byte) (n wiring.Netem, err error) {
	const head = 24 // struct tc_netem_qopt
	if len(options) < head {
		return n, errors.New("netem without parameters")
	}
	native := binary.NativeEndian
	n.Limit, n.Loss = native.Uint32(options[4:]), native.Uint32(options[8:])
	attrs := rtnl.Attributes(options[head:])
	for attrs.Next() {
		switch attrs.Kind {
		case attrLatency64:
			n.Delay = time.Duration(attrs.U64())
		case attrJitter64:
			n.Jitter = time.Duration(attrs.U64())
		}
	}
	return n, attrs.Err()
}

func parseHTB(options []byte) (def uint16, err error) {
	attrs := rtnl.Attributes(options)
	for attrs.Next() {
		if attrs.Kind == nl.TCA_HTB_INIT && len(attrs.Value) >= 12 {
			return uint16(binary.NativeEndian.Uint32(attrs.Value[8:])), nil
		}
	}
	return 0, errors.Join(errors.New("htb without parameters"), attrs.Err())
}

// parseClass reads a class of htb; ok is false for classes of other qdiscs.
func parseClass(message []byte) (class wiring.Class, ok bool, err error) {
	header := nl.DeserializeTcMsg(message)
	if header.Handle>>16 != wiring.HandleHTB>>16 {
		return class, false, nil
	}
	class.Minor = uint16(header.Handle)
	if header.Parent != tcRoot {
		class.Parent = uint16(header.Parent)
	}
	attrs := rtnl.Attributes(message[header.Len():])
	for attrs.Next() {
		if attrs.Kind != nl.TCA_OPTIONS {
			continue
		}
		if err := parseClassOptions(&class, attrs.Value); err != nil {
			return class, false, err
		}
	}
	return class, true, attrs.Err()
}

// parseClassOptions reads rates, which are in byte/s: those of more than 32 bits have attributes of their own.
func parseClassOptions(class *wiring.Class, options []byte) error {
	native := binary.NativeEndian
	attrs := rtnl.Attributes(options)
	for attrs.Next() {
		switch v := attrs.Value; {
		case attrs.Kind == nl.TCA_HTB_PARMS && len(v) >= 44: // htbOptions
			rate, ceil := uint64(native.Uint32(v[8:])), uint64(native.Uint32(v[20:]))
			class.Rate, class.Ceil = max(class.Rate, rate), max(class.Ceil, ceil)
			class.Burst, class.CeilBurst = native.Uint32(v[24:]), native.Uint32(v[28:])
			class.Quantum, class.Priority = native.Uint32(v[32:]), native.Uint32(v[40:])
		case attrs.Kind == nl.TCA_HTB_RATE64:
			class.Rate = max(class.Rate, attrs.U64())
		case attrs.Kind == nl.TCA_HTB_CEIL64:
			class.Ceil = max(class.Ceil, attrs.U64())
		}
	}
	return attrs.Err()
}
