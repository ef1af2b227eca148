package frr

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/signalling/te"
)

// OSPF are the lines of configuration by which ospfd floods links for traffic engineering, and has a database of them.
// The address is one of the router's that is always reachable.
func OSPF(router netip.Addr) []string {
	return []string{"router ospf", "capability opaque", "mpls-te on", "mpls-te router-address " + router.String(),
		"exit"}
}

// ISIS are those of isisd, for an area.
func ISIS(area string, router netip.Addr) []string {
	return []string{"router isis " + area, "mpls-te on", "mpls-te router-address " + router.String(), "exit"}
}

// Link are the lines of configuration that tell zebra of a link at one of its interfaces; ospfd and isisd flood it.
// They are the difference from what it was told last; nil: nothing was. No lines: nothing is new.
//
// Of the link, bandwidths, TE metric and groups are told. FRR takes no more reservable bandwidth than a link has, and
// floods no link without bandwidth: what it was told of one before is taken back.
func Link(name string, told *te.Link, is te.Link) []string {
	if told != nil && told.Bandwidth == 0 {
		if is.Bandwidth == 0 {
			return nil
		}
		told = nil
	}
	if is.Bandwidth == 0 {
		return linkParams(name, "no enable")
	}
	old, now := wire(te.Link{}), wire(is)
	if told != nil {
		old = wire(*told)
	}
	var lines []string
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	if told == nil {
		say("enable")
	}
	if old.max != now.max {
		// FRR refuses a maximum that is not above all that it has for the link. What ospfd floods meanwhile is
		// too little, never too much.
		say("max-rsv-bw 0")
		for p := range now.unreserved {
			say("unrsv-bw %d 0", p)
		}
		say("max-bw %s", now.max)
		old.reservable, old.unreserved = "0", [te.Priorities]string{"0", "0", "0", "0", "0", "0", "0", "0"}
	}
	if old.reservable != now.reservable {
		say("max-rsv-bw %s", now.reservable)
	}
	for p, b := range now.unreserved {
		if old.unreserved[p] != b {
			say("unrsv-bw %d %s", p, b)
		}
	}
	if told == nil || told.TEMetric != is.TEMetric {
		say("%s", orNo("metric", is.TEMetric, strconv.FormatUint(uint64(is.TEMetric), 10)))
	}
	if told == nil || told.Groups != is.Groups {
		say("%s", orNo("admin-grp", is.Groups, fmt.Sprintf("0x%x", is.Groups)))
	}
	if len(lines) == 0 {
		return nil
	}
	return linkParams(name, lines...)
}

func linkParams(name string, lines ...string) []string {
	return slices.Concat([]string{"interface " + name, "link-params"}, lines, []string{"exit-link-params", "exit"})
}

// numbers are bandwidths as FRR reads them.
type numbers struct {
	max, reservable string
	unreserved      [te.Priorities]string
}

func wire(l te.Link) (n numbers) {
	text := func(b uint64) string {
		return strconv.FormatFloat(float64(te.Float(min(b, l.Bandwidth))), 'g', -1, 32)
	}
	n.max, n.reservable = text(l.Bandwidth), text(l.Reservable)
	for p, b := range l.Unreserved {
		n.unreserved[p] = text(b)
	}
	return n
}

func orNo(command string, value uint32, text string) string {
	if value == 0 {
		return "no " + command
	}
	return command + " " + text
}
