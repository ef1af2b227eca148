package wire

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/vishvananda/netlink/nl"

	"github.com/pergola-net/pergola/model/slice"
)

// netemOptions is struct tc_netem_qopt.
type netemOptions struct {
	Latency, Limit, Loss, Gap, Duplicate, Jitter uint32
}

// Attributes that the library does not name (linux/pkt_sched.h); nanoseconds.
const (
	attrLatency64 = 10 // TCA_NETEM_LATENCY64
	attrJitter64  = 11 // TCA_NETEM_JITTER64
)

func (c *conn) setNetem(d device, parent uint32, shape slice.Shape) error {
	options := netemOptions{
		Limit: underWay(d.mtu, shape),
		Loss:  uint32(math.Round(shape.Loss / 100 * math.MaxUint32)),
	}
	attr := attrStruct(nl.TCA_OPTIONS, options)
	attr.AddChild(attrU64(attrLatency64, uint64(shape.Delay)))
	attr.AddChild(attrU64(attrJitter64, uint64(shape.Jitter)))
	if shape.Jitter != 0 {
		attr.AddChild(attrBytes(nl.TCA_NETEM_DELAY_DIST, normal()))
	}
	// With a rate of its own, netem never lets a frame overtake another, whatever the jitter. This one is too high to
	// delay anything; the shape's is htb's business.
	attr.AddChild(attrStruct(nl.TCA_NETEM_RATE, struct {
		Rate           uint32
		PacketOverhead int32
		CellSize       uint32
		CellOverhead   int32
	}{Rate: math.MaxUint32}))
	attr.AddChild(attrU64(nl.TCA_NETEM_RATE64, lineRate/8))
	return c.setQdisc(d.index, "netem", handleNetem, parent, attr)
}

// underWay is how many frames netem must be able to hold: what arrives while one is delayed, in small frames, or where no rate
// bounds that, in full ones at 10 Gbit/s.
func underWay(mtu int, shape slice.Shape) uint32 {
	const (
		least, most = 1000, 200_000
		small       = 84 // bytes of the smallest frame on a wire
		fast        = 10e9
	)
	rate, frame := float64(shape.Rate), float64(small)
	if rate == 0 {
		rate, frame = fast, float64(mtu+ethernetHeader)
	}
	longest := shape.Delay + 4*shape.Jitter
	return uint32(min(max(rate/8/frame*longest.Seconds()+float64(shape.Queue), least), most))
}

// normal is netem's table of the normal distribution: the quantiles, in units of the standard deviation over 8192
// (NETEM_DIST_SCALE), as 16-bit integers.
var normal = sync.OnceValue(func() []byte {
	const entries, scale = 4096, 8192
	table := make([]byte, 0, 2*entries)
	for i := range entries {
		quantile := (float64(i) + 0.5) / entries
		x := math.Sqrt2 * math.Erfinv(2*quantile-1) * scale
		table = binary.NativeEndian.AppendUint16(table, uint16(int16(math.Round(min(max(x, math.MinInt16), math.MaxInt16)))))
	}
	return table
})
