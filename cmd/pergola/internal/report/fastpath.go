package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
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
		return fmt.Sprintf("%s: %s in %s", name, wording.Count(n, "difference"),
			wording.Count(len(v.Routers), "router"))
	}
	return fmt.Sprintf("%s: no difference in %s", name, wording.Count(len(v.Routers), "router"))
}

// FastPath is the table of the routers of a network, on the fast path or not.
func FastPath(f *api.FastPath, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "IPV4", "IPV6", "ROUTES", "NEIGHBOURS", "PUNTS", "WHY NOT"}}
	for _, r := range f.Routers {
		t.Row(r.Node, onOff(r.IPv4.On), onOff(r.IPv6.On), strconv.Itoa(r.Routes), strconv.Itoa(r.Neighbours),
			punts(r.Punts), whyNot(r))
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) { return onOffStyle(t, styles, row, column, 1, 2) }
	return t
}

// Families is the table of a router's address families, and of the interfaces that are off the fast path while the
// router is on it.
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
