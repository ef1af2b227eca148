package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// Rates is the table of what went through interfaces between two looks, the busiest first.
func Rates(before, after *api.SliceTraffic, span time.Duration) *ui.Table {
	t := &ui.Table{Columns: []string{"INTERFACE", "IN/S", "IN", "OUT/S", "OUT", "WALKED", "DROPS/S"}}
	placed := slices.ContainsFunc(after.Interfaces, func(i api.InterfaceTraffic) bool { return i.Host != "" })
	if placed {
		t.Columns = slices.Insert(t.Columns, 1, "HOST")
	}
	earlier := make(map[string]api.InterfaceTraffic, len(before.Interfaces))
	for _, i := range before.Interfaces {
		earlier[i.Node+":"+i.Interface] = i
	}
	rows := make([]rate, 0, len(after.Interfaces))
	for _, i := range after.Interfaces {
		name := i.Node + ":" + i.Interface
		r := newRate(name, earlier[name], i, span)
		r.host = i.Host
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b rate) int {
		switch x, y := a.inFrames+a.outFrames, b.inFrames+b.outFrames; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	for _, r := range rows {
		row := []string{r.name, perSecond(r.inFrames), ui.Rate(uint64(r.inBits)), perSecond(r.outFrames),
			ui.Rate(uint64(r.outBits)), r.walked, perSecond(r.dropped)}
		if placed {
			row = slices.Insert(row, 1, r.host)
		}
		t.Row(row...)
	}
	return t
}

// PuntRates is the table of the frames that routers' kernels got from the fast path between two looks, by reason.
// Routers that got none are left out.
func PuntRates(before, after *api.SliceTraffic, span time.Duration) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "PUNT", "FRAMES/S"}}
	for _, node := range slices.Sorted(maps.Keys(after.Punts)) {
		news := map[string]uint64{}
		for reason, n := range after.Punts[node] {
			news[reason] = since(before.Punts[node][reason], n)
		}
		for _, reason := range byCount(news) {
			t.Row(node, reason, perSecond(float64(news[reason])/span.Seconds()))
		}
	}
	return t
}

// TunnelRates is the table of what went through tunnels between two looks, as each of their hosts counts it. Those
// through which nothing went are left out.
func TunnelRates(before, after *api.SliceTraffic, span time.Duration) *ui.Table {
	t := &ui.Table{Columns: []string{"TUNNEL TO", "HOST", "IN/S", "IN", "OUT/S", "OUT", "DROPS/S"}}
	type key struct{ host, port string }
	earlier := make(map[key]api.TunnelTraffic, len(before.Tunnels))
	for _, k := range before.Tunnels {
		earlier[key{k.Host, k.Port}] = k
	}
	for _, now := range after.Tunnels {
		was := earlier[key{now.Host, now.Port}]
		per := func(was, is uint64) float64 { return float64(since(was, is)) / span.Seconds() }
		in, out := per(was.Received.Frames, now.Received.Frames), per(was.Sent.Frames, now.Sent.Frames)
		dropped := map[string]uint64{}
		for reason, n := range now.Dropped {
			dropped[reason] = since(was.Dropped[reason], n)
		}
		if in == 0 && out == 0 && len(byCount(dropped)) == 0 {
			continue
		}
		t.Row(now.To, now.Host, perSecond(in), ui.Rate(uint64(8*per(was.Received.Bytes, now.Received.Bytes))),
			perSecond(out), ui.Rate(uint64(8*per(was.Sent.Bytes, now.Sent.Bytes))), drops(dropped, span))
	}
	return t
}

// ProgramTimes is the table of the processor time that packet programs took between two looks, of each host.
func ProgramTimes(before, after *api.SliceTraffic, span time.Duration) *ui.Table {
	t := &ui.Table{Columns: []string{"PACKET PROGRAMS", "CORES", "RESERVED", "METERED/S"}}
	earlier := make(map[string]api.ProgramTime, len(before.ProgramTime))
	for _, p := range before.ProgramTime {
		earlier[p.Host] = p
	}
	for _, now := range after.ProgramTime {
		was := earlier[now.Host]
		if now.Seconds < was.Seconds { // they were made anew
			was = api.ProgramTime{}
		}
		t.Row(cmp.Or(now.Host, "all"), fmt.Sprintf("%.3f", (now.Seconds-was.Seconds)/span.Seconds()),
			strconv.FormatFloat(now.Reserved, 'g', 3, 64),
			perSecond(float64(since(was.Metered, now.Metered))/span.Seconds()))
	}
	return t
}

// drops gives how many there were a second, by reason.
func drops(all map[string]uint64, span time.Duration) string {
	var parts []string
	for _, reason := range byCount(all) {
		parts = append(parts, perSecond(float64(all[reason])/span.Seconds())+" "+reason)
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// rate is one row: per second.
type rate struct {
	name, host                           string
	inFrames, inBits, outFrames, outBits float64
	walked                               string // share of all frames
	dropped                              float64
}

func newRate(name string, was, is api.InterfaceTraffic, span time.Duration) rate {
	per := func(was, is uint64) float64 { return float64(since(was, is)) / span.Seconds() }
	r := rate{
		name:      name,
		inFrames:  per(was.Received.Frames, is.Received.Frames),
		inBits:    8 * per(was.Received.Bytes, is.Received.Bytes),
		outFrames: per(was.Sent.Frames, is.Sent.Frames), outBits: 8 * per(was.Sent.Bytes, is.Sent.Bytes),
	}
	walked := per(was.WalkedIn.Frames, is.WalkedIn.Frames) + per(was.WalkedOut.Frames, is.WalkedOut.Frames)
	if all := r.inFrames + r.outFrames; all > 0 {
		r.walked = fmt.Sprintf("%.0f %%", 100*min(walked/all, 1))
	}
	for reason, n := range is.Dropped {
		r.dropped += per(was.Dropped[reason], n)
	}
	return r
}

// since is what a counter gained. One that shrank is that of an interface that was made anew.
func since(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}

// perSecond writes a number of things a second with three digits.
func perSecond(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}
