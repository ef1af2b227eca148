// Package queues measures how a packet program's queues divide ports, as figures 7 and 8 of SPP do ("Supercharging
// PlanetLab", SIGCOMM 2007): what comes in, what goes out and what waits, from live counters.
package queues

import (
	"math"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/api"
)

// Sample is what the counters say at one moment. All are in the order of the flows, or of the queues.
type Sample struct {
	At      float64  `json:"at"` // seconds since the run began
	In      []uint64 `json:"in"` // bytes of frames that were sent into the node, since the beginning
	Out     []uint64 `json:"out"`
	Backlog []uint64 `json:"backlog"` // bytes
	Stolen  float64  `json:"stolen"`  // share of all cores' time that the hypervisor took since the last sample
}

// Run is one course of the counters.
type Run struct {
	Names   []string `json:"names"` // of flows and queues
	Samples []Sample `json:"samples"`
}

// maxStolen is the share of time that may be stolen in a window that counts, as in package rounds.
const maxStolen = 0.01

// Rate gives the bits a second between a sample and the one before it.
func (r Run) Rate(counters func(Sample) []uint64, queue, sample int) float64 {
	if sample == 0 {
		return 0
	}
	before, now := r.Samples[sample-1], r.Samples[sample]
	return 8 * float64(counters(now)[queue]-counters(before)[queue]) / (now.At - before.At)
}

// In chooses what came in.
func In(s Sample) []uint64 { return s.In }

// Out chooses what went out.
func Out(s Sample) []uint64 { return s.Out }

// ShareError is how far the share of a queue is from what it should be, at worst, as a part of it: while frames wait in
// all queues, in windows of which the hypervisor took next to nothing. span is how long they are together.
func (r Run) ShareError(shares []int) (worst float64, span time.Duration) {
	sent := make([]float64, len(shares))
	all, whole, seconds := 0., 0, 0.
	for i := 1; i < len(r.Samples); i++ {
		before, now := r.Samples[i-1], r.Samples[i]
		if now.Stolen > maxStolen || slices.Contains(before.Backlog, 0) || slices.Contains(now.Backlog, 0) {
			continue
		}
		seconds += now.At - before.At
		for q := range shares {
			n := float64(now.Out[q] - before.Out[q])
			sent[q] += n
			all += n
		}
	}
	if all == 0 {
		return math.NaN(), 0
	}
	for _, share := range shares {
		whole += share
	}
	for q, share := range shares {
		want := float64(share) / float64(whole)
		worst = max(worst, math.Abs(sent[q]/all/want-1))
	}
	return worst, time.Duration(seconds * float64(time.Second))
}

// RateError is how far the rate of a port is from the port's own, at worst, as a part of it, while frames wait there.
func (r Run) RateError(port float64) (worst float64, span time.Duration) {
	worst = math.NaN()
	seconds := 0.
	for q := range r.Names {
		sent, backlogged := 0., 0.
		for i := 1; i < len(r.Samples); i++ {
			before, now := r.Samples[i-1], r.Samples[i]
			if now.Stolen > maxStolen || before.Backlog[q] == 0 || now.Backlog[q] == 0 {
				continue
			}
			sent += 8 * float64(now.Out[q]-before.Out[q])
			backlogged += now.At - before.At
		}
		if backlogged == 0 {
			continue
		}
		seconds += backlogged
		if is := math.Abs(sent/backlogged/port - 1); math.IsNaN(worst) || is > worst {
			worst = is
		}
	}
	return worst, time.Duration(seconds * float64(time.Second))
}

// Count adds counters of a node's queues up: by says to which entry of the sample those of a queue belong, -1 for
// none.
func (s *Sample) Count(all []api.QueueTraffic, by func(api.QueueTraffic) int) {
	for _, q := range all {
		if i := by(q); i >= 0 {
			s.Out[i] += q.Sent.Bytes
			s.Backlog[i] += q.Backlog.Bytes
		}
	}
}
