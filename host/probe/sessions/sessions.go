// Package sessions reads what routing daemons say of their neighbours: those of FRR and BIRD, whoever configured them.
// It is pure: Script is run in a node, and Parse reads what it prints.
package sessions

import (
	"fmt"
	"strings"
)

// Session is a neighbour of a routing daemon.
type Session struct {
	Protocol  string // ospf, ospf6, isis, bgp
	Interface string // by which it is reached; empty for BGP
	Neighbour string // as the daemon names it
	State     string // as the daemon words it
	Up        bool   // routes can be exchanged
}

// String words the session for a person.
func (s Session) String() string {
	where := ""
	if s.Interface != "" {
		where = " on " + s.Interface
	}
	return fmt.Sprintf("%s with %s%s is in state %s", s.Protocol, s.Neighbour, where, s.State)
}

// View is what the daemons of a node say.
type View struct {
	Daemons  []string // that answered
	Sessions []Session
	Alone    []Session // places where a protocol runs and has found no neighbour yet; Neighbour and State are empty
}

// mark begins a line that names what comes.
const mark = "=="

// Script is a program for a node's shell. It asks the daemons that run, in a bounded time, and prints nothing where
// none does. A daemon of FRR runs where its socket is; `show ip ospf` of vtysh would start none.
const Script = `
ask() { echo "== $1"; shift; timeout 5 "$@" 2>/dev/null; }
for run in /var/run/frr /run/frr; do
	[ -S $run/zebra.vty ] && command -v vtysh >/dev/null || continue
	for d in ospfd:ospf:ip\ ospf\ vrf\ all ospf6d:ospf6:ipv6\ ospf6 isisd:isis:isis; do
		rest=${d#*:}
		[ -S $run/${d%%:*}.vty ] || continue
		ask "frr ${rest%%:*} neighbor" vtysh -c "show ${rest#*:} neighbor json"
		ask "frr ${rest%%:*} interface" vtysh -c "show ${rest#*:} interface json"
	done
	[ ! -S $run/bgpd.vty ] || ask "frr bgp summary" vtysh -c "show bgp vrf all summary json"
	break
done
if command -v birdc >/dev/null && timeout 5 birdc -r show status >/dev/null 2>&1; then
	ask "bird protocols" birdc -r show protocols
	ask "bird ospf neighbors" birdc -r show ospf neighbors
fi
exit 0
`

// Parse reads what Script printed.
func Parse(out []byte) (View, error) {
	var v View
	for name, text := range sections(string(out)) {
		read, known := readers[name]
		if !known {
			return v, fmt.Errorf("read neighbours: unknown section %q", name)
		}
		if daemon := strings.Fields(name)[0]; len(v.Daemons) == 0 || v.Daemons[len(v.Daemons)-1] != daemon {
			v.Daemons = append(v.Daemons, daemon)
		}
		if strings.TrimSpace(text) == "" {
			continue // it did not answer: it is just starting, or the protocol is not configured
		}
		if err := read(text, &v); err != nil {
			return v, fmt.Errorf("read neighbours: %s: %w", name, err)
		}
	}
	return v, nil
}

// readers read the sections of Script.
var readers = map[string]func(text string, v *View) error{
	"frr ospf neighbor":   readOSPF,
	"frr ospf interface":  readOSPFInterfaces,
	"frr ospf6 neighbor":  readOSPF6,
	"frr ospf6 interface": readOSPF6Interfaces,
	"frr isis neighbor":   readISIS,
	"frr isis interface":  readISISInterfaces,
	"frr bgp summary":     readBGP,
	"bird protocols":      readBIRD,
	"bird ospf neighbors": readBIRDNeighbours,
}

// sections gives the parts of the output, by the name in their first line, in order.
func sections(out string) func(yield func(name, text string) bool) {
	return func(yield func(name, text string) bool) {
		for part := range strings.SplitSeq("\n"+out, "\n"+mark+" ") {
			name, text, found := strings.Cut(part, "\n")
			if name == "" && !found || strings.TrimSpace(part) == "" {
				continue
			}
			if !yield(name, text) {
				return
			}
		}
	}
}
