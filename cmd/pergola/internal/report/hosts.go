package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/wording"
)

// Hosts is the list of the machines of a cluster.
func Hosts(all []api.Host, styles ui.Styles, now time.Time) *ui.Table {
	t := &ui.Table{Columns: []string{"HOST", "ADDRESS", "STATE", "NODES", "CORES", "MEMORY", "LOAD", "LABELS"}}
	const state = 2
	for i := range all {
		h := &all[i]
		t.Row(h.Name, hostAddress(h), hostState(h, now), strconv.Itoa(h.Nodes), cores(h), memory(h),
			load(h), Labels(h))
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != state {
			return lipgloss.Style{}, false
		}
		return hostStyle(&all[row], styles), true
	}
	return t
}

func hostStyle(h *api.Host, styles ui.Styles) lipgloss.Style {
	switch {
	case !h.Alive:
		return styles.Bad
	case h.Policy.Cordoned || h.Policy.Draining || h.Problem != "":
		return styles.Warn
	}
	return styles.Good
}

func hostState(h *api.Host, now time.Time) string {
	state := "alive"
	if !h.Alive {
		state = "lost"
		if age := ui.Age(h.Since, now); age != "" {
			state += " " + age
		}
	}
	switch {
	case h.Policy.Draining:
		state += ", draining"
	case h.Policy.Cordoned:
		state += ", cordoned"
	}
	return state
}

func hostAddress(h *api.Host) string {
	if !h.Address.IsValid() {
		return h.API
	}
	return h.Address.String()
}

// cores are those that nodes may use, of all.
func cores(h *api.Host) string {
	return fmt.Sprintf("%s/%s", decimal(h.CPU), decimal(h.Cores))
}

func memory(h *api.Host) string { return ui.Bytes(h.RAM) + "/" + ui.Bytes(int64(h.Memory)) }

func load(h *api.Host) string {
	if !h.Alive {
		return ""
	}
	return strconv.FormatFloat(h.Load, 'f', 2, 64)
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// Labels are those of a machine as users write them; a dash where there are none.
func Labels(h *api.Host) string {
	all := h.AllLabels()
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, key+"="+all[key])
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ",")
}

// Host are the lines that describe a machine.
func Host(h *api.Host, now time.Time) []string {
	features := "none"
	if len(h.Features) > 0 {
		features = strings.Join(h.Features, ", ")
	}
	since := ""
	if age := ui.Age(h.Since, now); age != "" && h.Alive {
		since = " for " + age
	}
	lines := []string{
		fmt.Sprintf("%s: %s%s, %s placed on it", h.Name, hostState(h, now), since,
			wording.Count(h.Nodes, "node")),
		"tunnels end at  " + hostAddress(h),
		"they leave by   " + exits(h),
		"API             " + h.API,
		fmt.Sprintf("cores           %s allocated of %s, load %s", decimal(h.CPU), decimal(h.Cores),
			strconv.FormatFloat(h.Load, 'f', 2, 64)),
		fmt.Sprintf("memory          %s allocated of %s", ui.Bytes(h.RAM), ui.Bytes(int64(h.Memory))),
		"kernel          " + h.Kernel,
		"features        " + features,
		"version         " + h.Version,
		"labels          " + Labels(h),
		"allows          " + allowed(h),
	}
	for _, name := range slices.Sorted(maps.Keys(h.Paths)) {
		lines = append(lines, fmt.Sprintf("%-15s carries packets of %d bytes", "path to "+name, h.Paths[name]))
	}
	return lines
}

// exits is where packets of tunnels leave a machine.
func exits(h *api.Host) string {
	if !h.Bound {
		return "wherever its routes lead"
	}
	return "the interfaces below, and no others"
}

// allowed is what slices that were applied on other machines may use of this one.
func allowed(h *api.Host) string {
	all := slices.Clone(h.Allows.Paths)
	if h.Allows.Network {
		all = append(all, "its network")
	}
	if h.Allows.Outside {
		all = append(all, "connections to the outside")
	}
	if h.Allows.Volumes {
		all = append(all, "room for volumes")
	}
	if len(h.Allows.Ports) > 0 {
		all = append(all, "ports "+hosts.ListPorts(h.Allows.Ports))
	}
	if len(all) == 0 {
		return "only what its own root applied"
	}
	return strings.Join(all, ", ")
}

// Underlays is the table of the interfaces that carry a machine's tunnels.
func Underlays(h *api.Host, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"INTERFACE", "ADDRESSES", "MTU", "RATE", "XDP"}}
	const xdp = 4
	for _, u := range h.Underlays {
		t.Row(u.Name, prefixes(u.Addresses), strconv.Itoa(u.MTU), ui.Rate(u.Rate), u.XDP)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		switch {
		case column != xdp:
			return lipgloss.Style{}, false
		case strings.HasPrefix(t.Rows[row][xdp], "native"):
			return styles.Good, true
		}
		return styles.Warn, true
	}
	return t
}

// UnderlayTraffic is the table of what became of the packets of a machine's tunnels.
func UnderlayTraffic(u *api.UnderlayTraffic) *ui.Table {
	t := &ui.Table{Columns: []string{"TUNNELS", "PACKETS"}}
	t.Row("received", strconv.FormatUint(u.Received, 10))
	t.Row("by the line card", strconv.FormatUint(u.ByLineCard, 10))
	t.Row("sent", strconv.FormatUint(u.Sent, 10))
	for _, reason := range byCount(u.Dropped) {
		t.Row("dropped: "+reason, strconv.FormatUint(u.Dropped[reason], 10))
	}
	return t
}

// HostSlices is the table of what a machine has of slices.
func HostSlices(h *api.Host) *ui.Table {
	t := &ui.Table{Columns: []string{"NETWORK", "NODES"}}
	for _, s := range h.Slices {
		t.Row(s.Name, strconv.Itoa(s.Nodes))
	}
	return t
}

// Tokens is the list of tokens.
func Tokens(all []api.Token, styles ui.Styles, now time.Time) *ui.Table {
	t := &ui.Table{Columns: []string{"ID", "FOR", "EXPIRES", "MADE", "NOTE"}}
	const expires = 2
	for _, k := range all {
		left := "expired"
		if !k.Expired {
			left = "in " + ui.Age(now, k.Expires)
		}
		t.Row(k.ID, k.Role.Word(), left, ago(k.Created, now), k.Note)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != expires || !all[row].Expired {
			return lipgloss.Style{}, false
		}
		return styles.Bad, true
	}
	return t
}

// Members is the table of the servers that keep the cluster's state.
func Members(all []api.Member, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"SERVER", "STATE", "PEERS"}}
	const state = 1
	for _, m := range all {
		name := m.Name
		if name == "" {
			name = "(joins)"
		}
		t.Row(name, memberState(m), m.Peer)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		switch {
		case column != state:
			return lipgloss.Style{}, false
		case !all[row].Answers:
			return styles.Bad, true
		}
		return styles.Good, true
	}
	return t
}

func memberState(m api.Member) string {
	switch {
	case !m.Answers && m.Name == "":
		return "not started yet"
	case !m.Answers:
		return "does not answer"
	case m.Learner:
		return "catching up"
	case m.Leader:
		return "leads"
	}
	return "follows"
}

// Placement lists the machines that nodes are placed on, and which nodes: "h1: a, b, c", sorted; nothing where all are
// on one.
func Placement(placed map[string]string) []string {
	on := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(placed)) {
		on[placed[node]] = append(on[placed[node]], node)
	}
	if len(on) < 2 {
		return nil
	}
	var lines []string
	for _, host := range slices.Sorted(maps.Keys(on)) {
		const few = 8
		names := on[host]
		text := strings.Join(names[:min(len(names), few)], ", ")
		if len(names) > few {
			text += fmt.Sprintf(" and %d more", len(names)-few)
		}
		lines = append(lines, host+": "+text)
	}
	return lines
}

// UnreachableHosts are lines about the hosts whose part of an answer is missing.
func UnreachableHosts(missing []api.UnreachableHost) []string {
	var lines []string
	for _, h := range missing {
		lines = append(lines, fmt.Sprintf("nothing is known of the nodes on %s: %s", h.Host, h.Why))
	}
	return lines
}
