package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// Differences is the table of what `verify` found.
func Differences(all []api.Difference) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "WHAT", "KERNEL", "MIRROR"}}
	for _, d := range all {
		t.Row(d.Node, d.What, d.Kernel, d.Mirror)
	}
	return t
}

// Verified is the last line of `verify`.
func Verified(name string, v api.Verification) string {
	if n := len(v.Differences); n > 0 {
		return fmt.Sprintf("%s: %s in %s", name, ui.Count(n, "difference"), ui.Count(len(v.Routers), "router"))
	}
	return fmt.Sprintf("%s: no difference in %s", name, ui.Count(len(v.Routers), "router"))
}

// FastPath is the table of the routers of a network, on the fast path or not.
func FastPath(f *api.FastPath, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "IPV4", "IPV6", "ROUTES", "NEIGHBOURS", "PUNTS", "WHY NOT"}}
	for _, r := range f.Routers {
		t.Row(r.Node, onOff(r.IPv4.On), onOff(r.IPv6.On), strconv.Itoa(r.Routes), strconv.Itoa(r.Neighbours), punts(r.Punts), whyNot(r))
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) { return onOffStyle(t, styles, row, column, 1, 2) }
	return t
}

// Families is the table of a router's address families, and of the interfaces that are off the fast path while the router is on it.
func Families(r *api.RouterFastPath, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"FAMILY", "FAST PATH", "WHY NOT"}}
	for _, family := range []struct {
		name string
		api.FamilyFastPath
		why func(api.InterfaceFastPath) []string
	}{
		{"IPv4", r.IPv4, func(i api.InterfaceFastPath) []string { return i.IPv4 }},
		{"IPv6", r.IPv6, func(i api.InterfaceFastPath) []string { return i.IPv6 }},
	} {
		t.Row(family.name, onOff(family.On), strings.Join(family.Why, "; "))
		for _, i := range r.Interfaces {
			if why := family.why(i); len(why) > 0 {
				t.Row(family.name+" by "+i.Interface, onOff(false), strings.Join(why, "; "))
			}
		}
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) { return onOffStyle(t, styles, row, column, 1) }
	return t
}

// Punts is the table of the frames that a router's kernel got from the fast path, the most frequent reason first.
func Punts(all map[string]uint64) *ui.Table {
	t := &ui.Table{Columns: []string{"PUNT", "FRAMES"}}
	for _, reason := range byCount(all) {
		t.Row(reason, strconv.FormatUint(all[reason], 10))
	}
	return t
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func onOffStyle(t *ui.Table, styles ui.Styles, row, column int, of ...int) (lipgloss.Style, bool) {
	if !slices.Contains(of, column) {
		return lipgloss.Style{}, false
	}
	if t.Rows[row][column] == "on" {
		return styles.Good, true
	}
	return styles.Warn, true
}

// whyNot joins the reasons of both families, and those of interfaces; what holds for both families is said once.
func whyNot(r api.RouterFastPath) string {
	var parts []string
	if r.Trouble != "" {
		parts = append(parts, r.Trouble)
	}
	for _, why := range r.IPv4.Why {
		if !slices.Contains(r.IPv6.Why, why) {
			why = "IPv4: " + why
		}
		parts = append(parts, why)
	}
	for _, why := range r.IPv6.Why {
		if !slices.Contains(r.IPv4.Why, why) {
			parts = append(parts, "IPv6: "+why)
		}
	}
	for _, i := range r.Interfaces {
		for _, why := range slices.Concat(i.IPv4, i.IPv6) {
			parts = append(parts, i.Interface+": "+why)
		}
	}
	return strings.Join(parts, "; ")
}

// byCount sorts reasons: the most frequent first, equals by name.
func byCount(all map[string]uint64) []string {
	reasons := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(reasons, func(a, b string) int {
		switch {
		case all[a] > all[b]:
			return -1
		case all[a] < all[b]:
			return 1
		}
		return 0
	})
	return slices.DeleteFunc(reasons, func(r string) bool { return all[r] == 0 })
}

// punts gives the sum, and the most frequent reason.
func punts(all map[string]uint64) string {
	var sum uint64
	for _, n := range all {
		sum += n
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, byCount(all)[0])
}

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
		row := []string{r.name, perSecond(r.inFrames), ui.Rate(uint64(r.inBits)), perSecond(r.outFrames), ui.Rate(uint64(r.outBits)), r.walked, perSecond(r.dropped)}
		if placed {
			row = slices.Insert(row, 1, r.host)
		}
		t.Row(row...)
	}
	return t
}

// PuntRates is the table of the frames that routers' kernels got from the fast path between two looks, by reason. Routers that got none are
// left out.
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
		name:     name,
		inFrames: per(was.Received.Frames, is.Received.Frames), inBits: 8 * per(was.Received.Bytes, is.Received.Bytes),
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
