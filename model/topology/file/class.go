package file

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Class is a part of a link's rate, and the frames that it is for.
type Class struct {
	Match    []Match `json:"match,omitempty" doc:"Rules, one of which has to match. None: the class of all other frames."`
	Share    *int    `json:"share,omitempty" doc:"Weight among the classes that share what is left over, 1 to 100. Default: 1."`
	Reserve  Rate    `json:"reserve,omitempty" doc:"Bits a second that the class gets whenever it wants them."`
	Limit    Rate    `json:"limit,omitempty" doc:"Bits a second that the class gets at most. Default: the link's rate."`
	Priority int     `json:"priority,omitempty" minimum:"1" maximum:"8" doc:"Order in which classes get what is left after reservations: 1 first, 8 last. Default: 8."`
	Queue    int     `json:"queue,omitempty" minimum:"0" maximum:"1000000" doc:"Frames of the class that wait before the tail is dropped. Default: 1000."`
}

// Match is one rule: all that it names must hold.
type Match struct {
	DSCP  CodePoint  `json:"dscp,omitempty" doc:"DSCP: a name (EF, AF41, CS6) or a number, 0 to 63."`
	Proto Protocol   `json:"proto,omitempty" doc:"Protocol of IP: tcp, udp, icmp, ... or a number."`
	Src   Network    `json:"src,omitempty" doc:"Source: an address or a prefix."`
	Dst   Network    `json:"dst,omitempty" doc:"Destination: an address or a prefix."`
	SPort PortsRange `json:"sport,omitempty" doc:"Source port, or a range such as 5000-5010."`
	DPort PortsRange `json:"dport,omitempty" doc:"Destination port, or a range."`
	Port  PortsRange `json:"port,omitempty" doc:"Port of the source or of the destination, or a range."`
}

// matchField is a member of a rule, by the name that it has in files.
type matchField struct {
	name  string
	value *string
}

func (m *Match) fields() []matchField {
	return []matchField{
		{"dscp", (*string)(&m.DSCP)}, {"proto", (*string)(&m.Proto)}, {"src", (*string)(&m.Src)},
		{"dst", (*string)(&m.Dst)}, {"sport", (*string)(&m.SPort)}, {"dport", (*string)(&m.DPort)},
		{"port", (*string)(&m.Port)},
	}
}

// ParseMatch reads a rule as it is written in a command: dscp=EF,proto=udp,dport=5000-5010.
func ParseMatch(text string) (m Match, err error) {
	fields := m.fields()
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		at := slices.IndexFunc(fields, func(f matchField) bool { return f.name == name })
		switch {
		case at < 0:
			names := make([]string, len(fields))
			for i, f := range fields {
				names[i] = f.name
			}
			return m, fmt.Errorf("a rule has no %q: write such as proto=udp,dport=5004, of %s", name,
				strings.Join(names, ", "))
		case value == "":
			return m, fmt.Errorf("%s has no value: write %s=VALUE", name, name)
		case *fields[at].value != "":
			return m, fmt.Errorf("%s is given twice: write --match once for each rule", name)
		}
		*fields[at].value = value
	}
	return m, errors.Join(m.DSCP.Check(), m.Proto.Check(), m.Src.Check(), m.Dst.Check(), m.SPort.Check(),
		m.DPort.Check(), m.Port.Check())
}

// String writes the rule as in a command.
func (m Match) String() string {
	var parts []string
	for _, f := range m.fields() {
		if *f.value != "" {
			parts = append(parts, f.name+"="+*f.value)
		}
	}
	return strings.Join(parts, ",")
}

// MatchOf writes a rule as a file would.
func MatchOf(m slice.Match) (out Match) {
	if m.DSCP != nil {
		out.DSCP = CodePoint(strconv.Itoa(*m.DSCP))
	}
	if m.Protocol != 0 {
		out.Proto = ProtocolOf(m.Protocol)
	}
	if m.Src.IsValid() {
		out.Src = Network(m.Src.String())
	}
	if m.Dst.IsValid() {
		out.Dst = Network(m.Dst.String())
	}
	for _, p := range []struct {
		to *PortsRange
		is slice.Ports
	}{{&out.SPort, m.SrcPort}, {&out.DPort, m.DstPort}, {&out.Port, m.Port}} {
		if p.is != (slice.Ports{}) {
			*p.to = PortsRange(p.is.String())
		}
	}
	return out
}

// CodePoint is a DSCP as users write it, a name of RFC 2474, 2597, 3246, 5865 or 8622, or a number.
type CodePoint string

// Protocol is a protocol of IP as users write it, a name or a number.
type Protocol string

// Network is an address or a prefix as users write it.
type Network string

// PortsRange is a port or a range of ports as users write it.
type PortsRange string

var codePoints = map[string]int{
	"DF": 0, "BE": 0, "LE": 1, "EF": 46, "VA": 44,
	"CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56,
	"AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22,
	"AF31": 26, "AF32": 28, "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38,
}

// Value is the number, 0 to 63; nil where none is given.
func (c CodePoint) Value() (*int, error) {
	if c == "" {
		return nil, nil
	}
	if n, named := codePoints[strings.ToUpper(string(c))]; named {
		return &n, nil
	}
	n, err := strconv.Atoi(string(c))
	if err != nil {
		hint := ""
		if near := wording.Nearest(strings.ToUpper(string(c)),
			slices.Sorted(maps.Keys(codePoints))); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", near)
		}
		return nil, fmt.Errorf("%q is no DSCP: write a name such as EF, AF41 or CS6, or a number%s",
			string(c), hint)
	}
	if n < 0 || n > 63 {
		return nil, fmt.Errorf("DSCP %d is out of range: 0 to 63", n)
	}
	return &n, nil
}

var protocols = map[string]int{
	"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58,
	"icmp6": 58, "ospf": 89,
	"pim": 103, "vrrp": 112, "sctp": 132, "udplite": 136,
}

// Value is the number, 1 to 255; 0 where none is given.
func (p Protocol) Value() (int, error) {
	if p == "" {
		return 0, nil
	}
	if n, named := protocols[strings.ToLower(string(p))]; named {
		return n, nil
	}
	n, err := strconv.Atoi(string(p))
	if err != nil || n < 1 || n > 255 {
		return 0, fmt.Errorf("%q is no protocol of IP: write a name such as tcp, udp or icmp, "+
			"or a number from 1 to 255", string(p))
	}
	return n, nil
}

// ProtocolOf writes a protocol: by the name that most people know, where there is one.
func ProtocolOf(number int) Protocol {
	for _, name := range slices.Sorted(maps.Keys(protocols)) {
		if protocols[name] == number && name != "icmp6" {
			return Protocol(name)
		}
	}
	return Protocol(strconv.Itoa(number))
}

// HasPorts reports whether packets of the protocol begin with two ports.
func (p Protocol) HasPorts() bool {
	n, err := p.Value()
	return err == nil && slices.Contains([]int{0, 6, 17, 33, 132, 136}, n)
}

// Value is the prefix; the zero value where none is given.
func (n Network) Value() (netip.Prefix, error) {
	if n == "" {
		return netip.Prefix{}, nil
	}
	if a, err := netip.ParseAddr(string(n)); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(string(n))
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf(
			"%q is no address or prefix: write such as 192.0.2.1 or 2001:db8::/32", string(n))
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits behind its length: write %s", p, p.Masked())
	}
	return p, nil
}

// Value is the range; the zero value where none is given, or all are.
func (p PortsRange) Value() (r slice.Ports, err error) {
	if p == "" {
		return r, nil
	}
	first, last, isRange := strings.Cut(string(p), "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	to, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if errors.Join(err, err2) != nil || from > to || from == 0 {
		return r, fmt.Errorf("%q is no port: write a number from 1 to 65535, or a range such as 5000-5010",
			string(p))
	}
	return slice.Ports{First: uint16(from), Last: uint16(to)}, nil
}

// Check reports a DSCP that does not exist.
func (c CodePoint) Check() error { _, err := c.Value(); return err }

// Check reports a protocol that does not exist.
func (p Protocol) Check() error { _, err := p.Value(); return err }

// Check reports what is neither an address nor a prefix.
func (n Network) Check() error { _, err := n.Value(); return err }

// Check reports what is neither a port nor a range of ports.
func (p PortsRange) Check() error { _, err := p.Value(); return err }
