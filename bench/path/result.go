package path

import (
	"math"
	"slices"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Measure is what is measured.
type Measure string

// The measures. Rates are those of arrival.
const (
	NIC      Measure = "nic"       // 64-byte frames from one NIC to another, frames/s
	UDP      Measure = "udp"       // 64-byte frames from a socket to a socket, frames/s
	TCP      Measure = "tcp"       // one stream, bit/s
	ICMPTrip Measure = "icmp-trip" // round trip, answered by the far host's kernel, s
	UDPTrip  Measure = "udp-trip"  // round trip, answered by a program there, s
)

// Measures lists them.
var Measures = []Measure{NIC, UDP, TCP, ICMPTrip, UDPTrip}

// Network says what carries the frames.
type Network string

// The networks. All have the same graph and addresses.
const (
	Fast    Network = "fast"    // Pergola
	Off     Network = "off"     // Pergola, its fast path switched off
	Plain   Network = "plain"   // network namespaces and veth pairs: the kernel alone
	Mininet Network = "mininet" // Mininet with Linux routers
	OVS     Network = "ovs"     // Open vSwitch bridges that route, in user space
	Relay   Network = "relay"   // a program that hands frames on, and no router
)

// Key names a series.
type Key struct {
	Measure Measure `json:"measure"`
	Network Network `json:"network"`
	Routers int     `json:"routers"`
	Routes  int     `json:"routes,omitempty"` // of the router, where that is what is measured
}

// Series holds what was measured of one thing: at most one value for each round.
type Series struct {
	Key
	Samples []Sample `json:"samples"`
	// Slow is the share of frames that the first router's kernel forwarded, although there is a fast path.
	Slow float64 `json:"slow,omitempty"`
}

// Sample is what one window showed.
type Sample = rounds.Sample

// Missing says why something was not measured.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Result is all that was measured.
type Result struct {
	rounds.Counts
	Series  []Series  `json:"series"`
	Missing []Missing `json:"missing,omitempty"`
	Goals   []Goal    `json:"goals"`
}

func (r *Result) find(k Key) *Series {
	i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Key == k })
	if i < 0 {
		return nil
	}
	return &r.Series[i]
}

// Median of a series; not a number where nothing was measured.
func (r *Result) Median(k Key) float64 {
	s := r.find(k)
	if s == nil {
		return math.NaN()
	}
	return rounds.Median(s.Samples)
}

// Ratio of two series: the median over those rounds that have both.
func (r *Result) Ratio(of, to Key) float64 {
	return r.paired(of, to, func(a, b float64) float64 { return a / b })
}

// paired is the median of f over the rounds that have both series.
func (r *Result) paired(a, b Key, f func(a, b float64) float64) float64 {
	of, to := r.find(a), r.find(b)
	if of == nil || to == nil {
		return math.NaN()
	}
	return rounds.Paired(of.Samples, to.Samples, f)
}

// Hops lists the numbers of routers of which a measure has series.
func (r *Result) Hops(m Measure) []int {
	var all []int
	for _, s := range r.Series {
		if s.Measure == m && s.Routes == 0 && !slices.Contains(all, s.Routers) {
			all = append(all, s.Routers)
		}
	}
	slices.Sort(all)
	return all
}
