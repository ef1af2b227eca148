package sessions

import (
	"slices"
	"strings"
)

// readBIRD reads `show protocols`: a table of name, protocol, table, state, since and, where there is one, a word more.
func readBIRD(text string, v *View) error {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		const name, protocol, state, since = 0, 1, 3, 4
		if len(f) <= since || f[state] == "down" && len(f) == since+1 {
			continue // a head, a disabled protocol
		}
		info := strings.Join(f[since+1:], " ")
		switch f[protocol] {
		case "BGP":
			v.add(Session{"bgp", "", f[name], info, info == "Established"})
		case "OSPF":
			if info == "Alone" {
				v.Alone = append(v.Alone, Session{Protocol: "ospf"})
			}
		}
	}
	return nil
}

// readBIRDNeighbours reads `show ospf neighbors`: for each instance its name, and a table of router ID, priority,
// state, dead time, interface and address.
func readBIRDNeighbours(text string, v *View) error {
	head := []string{"Router", "ID", "Pri", "State"}
	rows := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) >= len(head) && slices.Equal(f[:len(head)], head):
			rows = true
		case len(f) < 6:
			rows = false
		case rows:
			v.add(Session{"ospf", f[4], f[0], f[2], isFull(f[2])})
		}
	}
	return nil
}
