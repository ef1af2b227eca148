package importer

import (
	"fmt"
	"regexp"
	"strconv"
)

// faceRule maps the interfaces of some vendors to numbers as containerlab does: eth1 is the first one that carries
// traffic.
type faceRule struct {
	kinds   *regexp.Regexp // nil: all
	pattern *regexp.Regexp // its last group is the port; one before it a slot of slot ports
	first   int            // number of the port that is eth1
	slot    int            // ports of a slot
}

// The rules, the first that matches counts. (https://containerlab.dev/manual/kinds, at each kind)
var faceRules = []faceRule{
	{pattern: regexp.MustCompile(`^(?:ethernet-|e)1[-/](\d+)$`), first: 1},
	{kinds: regexp.MustCompile(`iol$`), pattern: regexp.MustCompile(`^(?:e|Ethernet)\s?(\d+)/(\d+)$`), slot: 4,
		first: 1},
	{kinds: regexp.MustCompile(`cjunosevolved$`), pattern: regexp.MustCompile(`^et-0/0/(\d+)$`), first: -3},
	{pattern: regexp.MustCompile(`^(?:et|xe|ge)-0/0/(\d+)$`)},
	{kinds: regexp.MustCompile(`csr|c8000v`), pattern: regexp.MustCompile(`^Gi(?:gabitEthernet)?\s?(\d+)$`),
		first: 2},
	{pattern: regexp.MustCompile(`^Gi(?:gabitEthernet)?\s?(?:0/)?(\d+)$`)},
	{pattern: regexp.MustCompile(`^Gi(?:gabitEthernet)?\s?1/0/(\d+)$`), first: 1},
	{pattern: regexp.MustCompile(`^(?:Gi|GigabitEthernet|Te|TenGigE|TenGigabitEthernet)0[-/]0[-/]0[-/](\d+)$`)},
	{pattern: regexp.MustCompile(`^(?:Et|Ethernet)\s?1/(\d+)$`), first: 1},
	{pattern: regexp.MustCompile(`^(?:et|Et|vio|vtnet|swp)(\d+)$`), first: 1},
	{pattern: regexp.MustCompile(`^(?:port|ether)(\d+)$`), first: 2},
	{kinds: regexp.MustCompile(`sros|aoscx`), pattern: regexp.MustCompile(`^1/1/(\d+)$`), first: 1},
	{kinds: regexp.MustCompile(`sros`), pattern: regexp.MustCompile(`^1/1/c(\d+)/1$`), first: 1},
	{pattern: regexp.MustCompile(`^(?:1\.)?(\d+)$`), first: 1},
}

// number gives the number of an interface's port, from 1, or less where the port is not for traffic; false where the
// rule is for others.
func (r faceRule) number(kind, name string) (int, bool) {
	if r.kinds != nil && !r.kinds.MatchString(kind) {
		return 0, false
	}
	groups := r.pattern.FindStringSubmatch(name)
	if groups == nil {
		return 0, false
	}
	port := 0
	for _, text := range groups[1:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, false
		}
		port = port*r.slot + n
	}
	return port + 1 - r.first, true
}

// face gives the name that an interface of a replaced node has here: eth and a number, or one that Linux takes. Names
// that mean one interface, such as ethernet-1/1 and e1-1, give one name.
func (n *clabNode) face(name string) string {
	if known := n.faces[name]; known != "" {
		return known
	}
	if n.as == AsImage {
		return bootedFace(name)
	}
	chosen := linuxName(name)
	for _, rule := range faceRules {
		if port, ok := rule.number(n.kind, name); ok {
			if port >= 1 {
				chosen = fmt.Sprintf("eth%d", port)
			}
			break
		}
	}
	if n.faces == nil {
		n.faces = map[string]string{}
	}
	n.faces[name] = chosen
	return chosen
}

// maxFace is the longest name of an interface in Linux (IFNAMSIZ-1).
const maxFace = 15

var (
	notInFace  = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	longPrefix = regexp.MustCompile(`^([A-Za-z]{2})[A-Za-z]+`)
)

// linuxName makes a name that Linux takes of a vendor's: e1-1-c1-1 of 1/1/c1/1, Hu0-0-0-1 of HundredGigE0/0/0/1.
func linuxName(name string) string {
	name = notInFace.ReplaceAllString(name, "-")
	if name != "" && (name[0] >= '0' && name[0] <= '9' || name[0] == '-' || name[0] == '.') {
		name = "e" + name
	}
	if len(name) > maxFace {
		name = longPrefix.ReplaceAllString(name, "$1")
	}
	return name[:min(len(name), maxFace)]
}
