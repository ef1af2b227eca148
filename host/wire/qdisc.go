package wire

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// A device's qdiscs, from the root down; either of the first two may be absent:
//
//	netem 10:    delay, jitter, loss: frames that are under way
//	htb 1:       class 1:1 has the rate
//	pfifo 2:     frames that wait for their turn; the tail is dropped
//
// netem is above htb, and not htb's leaf as one often sees it, so that frames under way do not take up the queue. That frames
// are first delayed and then queued, where a real link does the reverse, makes no difference to when they arrive.
const (
	handleNetem = 0x10 << 16
	handleHTB   = 1 << 16
	handleFIFO  = 2 << 16

	classAll = handleHTB | 1 // every frame
)

// defaultQueue is what the kernel gives an Ethernet device, txqueuelen.
const defaultQueue = 1000

// layout says which qdiscs a shape needs.
type layout struct{ netem, htb bool }

func layoutOf(shape slice.Shape) layout {
	return layout{netem: shape.NeedsNetem(), htb: shape.Rate != 0 || shape.Queue != 0}
}

// setQdiscs makes the device's qdiscs be of the shape. If they need no other layout they are changed in place, and keep the frames
// that they hold.
func (c *conn) setQdiscs(d device, was Queue, shape slice.Shape) error {
	want := layoutOf(shape)
	inPlace := !was.Unsure && layoutOf(was.Shape) == want
	if !inPlace {
		if err := c.deleteRoot(d.index); err != nil {
			return err
		}
	}
	parent := uint32(tcRoot)
	if want.netem {
		if err := c.setNetem(d, parent, shape); err != nil {
			return fmt.Errorf("set netem on %s: %w", d.name, err)
		}
		parent = handleNetem | 1
	}
	if want.htb {
		if err := c.setHTB(d, parent, shape, inPlace); err != nil {
			return fmt.Errorf("set htb on %s: %w", d.name, err)
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
	if err != nil {
		return fmt.Errorf("delete qdisc: %w", err)
	}
	return nil
}

func tcHeader(index int, handle, parent uint32) *nl.TcMsg {
	return &nl.TcMsg{Ifindex: int32(index), Handle: handle, Parent: parent}
}

// setQdisc makes a qdisc, or changes the one that has the handle.
func (c *conn) setQdisc(index int, kind string, handle, parent uint32, options *nl.RtAttr) error {
	return c.do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, tcHeader(index, handle, parent), attrString(nl.TCA_KIND, kind), options)
}

// psched is the unit of time in which htb takes bursts, and netem its older options.
const psched = 64 * time.Nanosecond

// setHTB makes htb and its leaf; in place, it changes the rate and the leaf's limit.
func (c *conn) setHTB(d device, parent uint32, shape slice.Shape, inPlace bool) error {
	if !inPlace { // htb itself cannot be changed
		glob := struct{ Version, Rate2Quantum, Default, Debug, Direct uint32 }{Version: 3, Rate2Quantum: 10, Default: classAll & 0xffff}
		if err := c.setQdisc(d.index, "htb", handleHTB, parent, attrNest(nl.TCA_OPTIONS, attrStruct(nl.TCA_HTB_INIT, glob))); err != nil {
			return err
		}
	}
	err := c.do(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE, tcHeader(d.index, classAll, handleHTB), attrString(nl.TCA_KIND, "htb"), htbClass(d.mtu, shape.Rate))
	if err != nil {
		return fmt.Errorf("set rate: %w", err)
	}
	limit := struct{ Limit uint32 }{defaultQueue}
	if shape.Queue != 0 {
		limit.Limit = uint32(shape.Queue)
	}
	if err := c.setQdisc(d.index, "pfifo", handleFIFO, classAll, attrStruct(nl.TCA_OPTIONS, limit)); err != nil {
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

// lineRate stands for no limit, in bit/s: a queue without a rate still has to be a queue.
const lineRate = 1_000_000_000_000

func htbClass(mtu int, rate uint64) *nl.RtAttr {
	if rate == 0 {
		rate = lineRate
	}
	bytes := max(rate/8, 1)
	spec := rateSpec{LinkLayer: 1, Rate: uint32(min(bytes, math.MaxUint32))} // Ethernet: no rate table is needed
	ticks := burstTicks(mtu, bytes)
	options := struct {
		Rate, Ceil                            rateSpec
		Buffer, CBuffer, Quantum, Level, Prio uint32
	}{spec, spec, ticks, ticks, uint32(mtu + ethernetHeader), 0, 0}
	attr := attrNest(nl.TCA_OPTIONS, attrStruct(nl.TCA_HTB_PARMS, options))
	if bytes > math.MaxUint32 {
		attr.AddChild(attrU64(nl.TCA_HTB_RATE64, bytes))
		attr.AddChild(attrU64(nl.TCA_HTB_CEIL64, bytes))
	}
	return attr
}

const ethernetHeader = 14

// burstTicks is how long the class may send at once after a pause: what it must make up for is that timers come late, by up
// to two milliseconds on a busy machine. Below that rate, it is two frames.
func burstTicks(mtu int, bytesPerSecond uint64) uint32 {
	const late = 2 * time.Millisecond
	frames := float64(2*(mtu+ethernetHeader)) / float64(bytesPerSecond) * float64(time.Second)
	return uint32(min(max(frames, float64(late))/float64(psched), math.MaxUint32))
}
