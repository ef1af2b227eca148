package tunnel

import (
	"math"
	"slices"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Measure is what is measured.
type Measure string

// The measures.
const (
	Rate Measure = "rate" // through a machine, frames/s
	Trip Measure = "trip" // round trip between nodes of two machines, ICMP, s
	Far  Measure = "far"  // the same, with a machine between them that has a router, s
	TCP  Measure = "tcp"  // between the same, one stream, bit/s
	// what arrives of a slice that sends as much as it can through a link with a rate, frames/s
	Reserved Measure = "reserved"
	Lost     Measure = "lost"     // the share that is lost of a slice's frames that are fewer than its link's rate
	SetUp    Measure = "set-up"   // of Scale tunnels, with their joints, s
	Deletion Measure = "deletion" // of as many, s
)

// Variant is how frames get through the machine.
type Variant string

// The variants.
const (
	Native Variant = "native" // the kernel forwards plain frames: no tunnels
	Beside Variant = "beside" // the same, on a machine that carries tunnels of Pergola: its own traffic
	// a container between two bridges, each with a VXLAN device of the kernel: what Docker and containerlab users
	// have
	Bridged Variant = "bridged"
	Direct  Variant = "direct" // a container that has the kernel's VXLAN devices within
	OVS     Variant = "ovs"    // Open vSwitch in user space: flows between two tunnels of keyed GRE
	LAN     Variant = "lan"    // a router of Pergola between two LANs that reach over several machines, EGRE
	EGRE    Variant = "egre"   // a router of Pergola between two tunnels
	VXLAN   Variant = "vxlan"  // the same, with VXLAN outside
)

// Variants are those through a machine, in the order of tables.
var Variants = []Variant{Native, Beside, Bridged, Direct, OVS, LAN, VXLAN, EGRE}

// Between two machines there are two more, where the programs of tc do all the work, as there is no line card (--xdp
// off). And what the kernel's VXLAN does where there is one.
const (
	BridgedBeside Variant = "bridged-beside"

	VXLANByTC Variant = "vxlan-tc"
	EGREByTC  Variant = "egre-tc"
)

// One is EGRE on a host with many slices, of which the frames are for one.
const One Variant = "one"

// What happens beside a slice whose rate is reserved.
const (
	Alone   Variant = "alone"
	Flooded Variant = "flooded" // another slice sends as much as it can
)

// Key names a series.
type Key struct {
	Measure Measure `json:"measure"`
	Variant Variant `json:"way"`
	Size    int     `json:"size,omitempty"`   // of frames, in the tunnel
	Slices  int     `json:"slices,omitempty"` // on the host
}

// Series holds what was measured of one thing: at most one value for each round.
type Series struct {
	Key
	Samples []rounds.Sample `json:"samples"`
}

// Missing says why something was not measured.
type Missing struct {
	What Variant `json:"what"`
	Why  string  `json:"why"`
}

// Result is all that was measured.
type Result struct {
	rounds.Counts
	Sizes   []int     `json:"sizes"`
	Slices  []int     `json:"slices"`
	Series  []Series  `json:"series"`
	Missing []Missing `json:"missing,omitempty"`
	Goals   []Goal    `json:"goals"`
}

func (r *Result) samples(k Key) []rounds.Sample {
	i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Key == k })
	if i < 0 {
		return nil
	}
	return r.Series[i].Samples
}

// Median of a series; not a number where nothing was measured.
func (r *Result) Median(k Key) float64 { return rounds.Median(r.samples(k)) }

// Ratio of two series: the median over the rounds that have both.
func (r *Result) Ratio(of, to Key) float64 {
	return rounds.Paired(r.samples(of), r.samples(to), func(a, b float64) float64 { return a / b })
}

// More is how much more one is than the other.
func (r *Result) More(of, than Key) float64 {
	return rounds.Paired(r.samples(of), r.samples(than), func(a, b float64) float64 { return a - b })
}

// Gbits is a rate of frames in Gbit/s of what is in the tunnel.
func Gbits(rate float64, size int) float64 { return rate * float64(size) * 8 / 1e9 }

// WireRate is how many frames of a size, each in a GRE tunnel with a key or, native, in none, a wire of Ethernet
// takes in a second: beside them there are checksum, preamble and gap.
func WireRate(bits float64, size int, native bool) float64 {
	const outer, ethernet = 42, 4 + 8 + 12
	if !native {
		size += outer
	}
	return bits / 8 / float64(max(size, 60)+ethernet)
}

// RateKey is that of the rates of a variant with frames of a size.
func RateKey(w Variant, size int) Key {
	switch w {
	case LAN, EGRE, VXLAN:
		return rate(w, size, 1)
	default:
		return rate(w, size, 0)
	}
}

func rate(w Variant, size, slices int) Key {
	return Key{Measure: Rate, Variant: w, Size: size, Slices: slices}
}

// worst is the greatest of a series.
func (r *Result) worst(k Key) float64 {
	worst := math.NaN()
	for _, s := range r.samples(k) {
		if math.IsNaN(worst) || s.Value > worst {
			worst = s.Value
		}
	}
	return worst
}
