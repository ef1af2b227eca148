package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/unit"
)

// setTree makes the device's qdiscs be those of the tree. If they need no other qdiscs or classes they are changed in
// place, and keep the frames that they hold; when a qdisc goes, what waits in it is lost.
func (c *conn) setTree(d device, was, want wiring.Tree) error {
	if was.Equal(want) {
		return nil
	}
	inPlace := was.Alike(want)
	if !inPlace {
		if err := c.deleteRoot(d.index); err != nil {
			return fmt.Errorf("delete qdisc of %s: %w", d.name, err)
		}
		was = wiring.Tree{}
	}
	parent := uint32(tcRoot)
	if (want.Netem != wiring.Netem{}) {
		if want.Netem != was.Netem {
			if err := c.setNetem(d.index, parent, want.Netem); err != nil {
				return fmt.Errorf("set netem on %s: %w", d.name, err)
			}
		}
		parent = wiring.HandleNetem | 1
	}
	if want.Default == 0 {
		return nil
	}
	if !inPlace { // htb itself cannot be changed
		if err := c.addHTB(d.index, parent, want.Default); err != nil {
			return fmt.Errorf("set htb on %s: %w", d.name, err)
		}
	}
	if err := c.deleteClasses(d, was, want); err != nil {
		return err
	}
	for _, class := range want.Classes {
		if slices.Contains(was.Classes, class) {
			continue
		}
		if err := c.setClass(d.index, class); err != nil {
			return fmt.Errorf("set class 1:%x on %s: %w", class.Minor, d.name, err)
		}
	}
	return nil
}

// deleteClasses deletes those that the tree has no more. What waits in them is lost, what comes for them is the default
// class's.
func (c *conn) deleteClasses(d device, was, want wiring.Tree) error {
	for _, class := range was.Classes {
		same := func(other wiring.Class) bool { return other.Minor == class.Minor }
		if slices.ContainsFunc(want.Classes, same) {
			continue
		}
		id := wiring.HandleHTB | uint32(class.Minor)
		if err := c.do(unix.RTM_DELTCLASS, 0, tcHeader(d.index, id, 0)); err != nil {
			return fmt.Errorf("delete class 1:%x of %s: %w", class.Minor, d.name, err)
		}
	}
	return nil
}

const tcRoot = 0xffffffff // TC_H_ROOT

// deleteRoot gives the device back the qdisc that it was made with.
func (c *conn) deleteRoot(index int) error {
	err := c.do(unix.RTM_DELQDISC, 0, tcHeader(index, 0, tcRoot))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // EINVAL: there is only the default one
		return nil
	}
	return err
}

func tcHeader(index int, handle, parent uint32) *nl.TcMsg {
	return &nl.TcMsg{Ifindex: int32(index), Handle: handle, Parent: parent}
}

// setQdisc makes a qdisc, or changes the one that has the handle.
func (c *conn) setQdisc(index int, kind string, handle, parent uint32, options rtnl.Attr) error {
	return c.do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
		tcHeader(index, handle, parent), rtnl.String(nl.TCA_KIND, kind), options)
}

// htbGlobal is struct tc_htb_glob.
type htbGlobal struct{ Version, Rate2Quantum, Default, Debug, Direct uint32 }

func (c *conn) addHTB(index int, parent uint32, def uint16) error {
	global := htbGlobal{Version: 3, Rate2Quantum: 10, Default: uint32(def)}
	options := rtnl.Nest(nl.TCA_OPTIONS, rtnl.Struct(nl.TCA_HTB_INIT, global))
	return c.setQdisc(index, "htb", wiring.HandleHTB, parent, options)
}

// setClass makes a class and its leaf, or changes them.
func (c *conn) setClass(index int, class wiring.Class) error {
	id := wiring.HandleHTB | uint32(class.Minor)
	header := tcHeader(index, id, wiring.HandleHTB|uint32(class.Parent))
	err := c.do(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE, header, rtnl.String(nl.TCA_KIND, "htb"), classOptions(class))
	if err != nil {
		return fmt.Errorf("set rate: %w", err)
	}
	if class.IsInner() {
		return nil
	}
	kind, limit := "pfifo", struct{ Limit uint32 }{class.Queue}
	if class.Bytes != 0 {
		kind, limit.Limit = "bfifo", class.Bytes
	}
	if err := c.setQdisc(index, kind, class.FIFO(), id, rtnl.Struct(nl.TCA_OPTIONS, limit)); err != nil {
		return fmt.Errorf("set queue: %w", err)
	}
	return nil
}

// rateSpec is struct tc_ratespec.
type rateSpec struct {
	CellLog, LinkLayer uint8
	Overhead           uint16
	CellAlign          int16
	MPU                uint16
	Rate               uint32 // byte/s
}

// htbOptions is struct tc_htb_opt.
type htbOptions struct {
	Rate, Ceil                            rateSpec
	Buffer, CBuffer, Quantum, Level, Prio uint32
}

func classOptions(class wiring.Class) rtnl.Attr {
	spec := func(bytes uint64) rateSpec { // Ethernet: no rate table is needed
		return rateSpec{LinkLayer: 1, Rate: uint32(min(bytes, math.MaxUint32))}
	}
	attr := rtnl.Nest(nl.TCA_OPTIONS, rtnl.Struct(nl.TCA_HTB_PARMS, htbOptions{
		Rate: spec(class.Rate), Ceil: spec(class.Ceil), Buffer: class.Burst, CBuffer: class.CeilBurst,
		Quantum: class.Quantum, Prio: class.Priority,
	}))
	if class.Rate > math.MaxUint32 {
		attr = attr.With(rtnl.U64(nl.TCA_HTB_RATE64, class.Rate))
	}
	if class.Ceil > math.MaxUint32 {
		attr = attr.With(rtnl.U64(nl.TCA_HTB_CEIL64, class.Ceil))
	}
	return attr
}

// netemOptions is struct tc_netem_qopt.
type netemOptions struct {
	Latency, Limit, Loss, Gap, Duplicate, Jitter uint32
}

// netemRate is struct tc_netem_rate.
type netemRate struct {
	Rate           uint32
	PacketOverhead int32
	CellSize       uint32
	CellOverhead   int32
}

// Attributes that the library does not name (linux/pkt_sched.h); nanoseconds.
const (
	attrLatency64 = 10 // TCA_NETEM_LATENCY64
	attrJitter64  = 11 // TCA_NETEM_JITTER64
)

func (c *conn) setNetem(index int, parent uint32, n wiring.Netem) error {
	attr := rtnl.Struct(nl.TCA_OPTIONS, netemOptions{Limit: n.Limit, Loss: n.Loss}).With(
		rtnl.U64(attrLatency64, uint64(n.Delay)), rtnl.U64(attrJitter64, uint64(n.Jitter)))
	if n.Jitter != 0 {
		attr = attr.With(rtnl.Bytes(nl.TCA_NETEM_DELAY_DIST, normal()))
	}
	// With a rate of its own, netem never lets a frame overtake another, whatever the jitter. This one is too high
	// to delay anything; the link's rate is htb's task.
	return c.setQdisc(index, "netem", wiring.HandleNetem, parent, attr.With(
		rtnl.Struct(nl.TCA_NETEM_RATE, netemRate{Rate: math.MaxUint32}),
		rtnl.U64(nl.TCA_NETEM_RATE64, unit.MaxRate.BytesPerSecond())))
}

// normal is netem's table of the normal distribution: the quantiles, in units of the standard deviation over 8192
// (NETEM_DIST_SCALE), as 16-bit integers.
var normal = sync.OnceValue(func() []byte {
	const entries, scale = 4096, 8192
	table := make([]byte, 0, 2*entries)
	for i := range entries {
		quantile := (float64(i) + 0.5) / entries
		x := math.Sqrt2 * math.Erfinv(2*quantile-1) * scale
		table = binary.NativeEndian.AppendUint16(table, uint16(int16(math.Round(min(max(x, math.MinInt16),
			math.MaxInt16)))))
	}
	return table
})
