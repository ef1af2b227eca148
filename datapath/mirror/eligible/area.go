package eligible

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

var byteOrder = binary.NativeEndian

// area is one thing to look at. An areas value is a set of them.
type (
	area  int
	areas uint
)

const (
	rules area = iota
	links
	qdiscs
	forwarding
	nftables
	xfrm
	oldTables
	packets
	areaCount
)

const everything = areas(1<<areaCount - 1)

func (a area) alone() areas { return 1 << a }

// looks are how each area is looked at, in the order in which reasons are listed.
var looks = [areaCount]struct {
	what string
	look func(*visit) (Verdict, error)
}{
	rules:      {"policy rules", lookAtRules},
	links:      {"interfaces", lookAtLinks},
	qdiscs:     {"qdiscs", lookAtQdiscs},
	forwarding: {"forwarding", lookAtForwarding},
	nftables:   {"nftables", lookAtNftables},
	xfrm:       {"xfrm policies", lookAtXfrm},
	oldTables:  {"iptables", lookAtXtables},
	packets:    {"packet sockets", lookAtPackets},
}

// source is a netlink protocol with the groups that announce changes, and what a message of a type is about.
type source struct {
	protocol int
	groups   []int
	about    func(kind uint16) areas
	all      areas // when messages were lost
}

var sources = [...]source{
	{
		protocol: unix.NETLINK_ROUTE,
		groups: []int{
			unix.RTNLGRP_LINK, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
		},
		about: aboutRoute,
		all:   rules.alone() | links.alone() | qdiscs.alone() | forwarding.alone(),
	},
	{
		protocol: unix.NETLINK_NETFILTER,
		groups:   []int{unix.NFNLGRP_NFTABLES},
		about:    func(uint16) areas { return nftables.alone() },
		all:      nftables.alone(),
	},
	{
		protocol: unix.NETLINK_XFRM,
		groups:   []int{xfrmGroupPolicy},
		about:    func(uint16) areas { return xfrm.alone() },
		all:      xfrm.alone(),
	},
}

func aboutRoute(kind uint16) areas {
	switch kind {
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return rules.alone()
	case unix.RTM_NEWLINK:
		return links.alone()
	case unix.RTM_DELLINK: // takes its qdiscs and its nftables chains along
		return links.alone() | qdiscs.alone() | nftables.alone()
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC:
		return qdiscs.alone()
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return forwarding.alone()
	default: // filters need a qdisc; actions, a filter
		return 0
	}
}

// visit is one look into a namespace: its netlink sockets, opened when they are needed, by a thread that is in the
// namespace.
type visit struct {
	node    *node
	sockets map[int]*rtnl.Conn
	buf     *[]byte // for one answer at a time
}

// answerSize is more than the kernel sends at once.
const answerSize = 64 << 10

// answers are buffers for visits, most of which are short.
var answers = sync.Pool{New: func() any { b := make([]byte, answerSize); return &b }}

func newVisit(n *node) *visit {
	return &visit{node: n, sockets: map[int]*rtnl.Conn{}, buf: answers.Get().(*[]byte)}
}

func (v *visit) close() {
	for _, s := range v.sockets {
		_ = s.Close()
	}
	if len(*v.buf) == answerSize {
		answers.Put(v.buf)
	}
}

// room gives so many bytes, all zero, until the next answer.
func (v *visit) room(size int) []byte {
	if size > len(*v.buf) {
		b := make([]byte, size)
		v.buf = &b
	}
	b := (*v.buf)[:size]
	clear(b)
	return b
}

func (v *visit) route(request []byte, f func(data []byte) error) error {
	return v.ask(unix.NETLINK_ROUTE, request, f)
}

func (v *visit) ask(protocol int, request []byte, f func(data []byte) error) error {
	s, ok := v.sockets[protocol]
	if !ok {
		var err error
		if s, err = rtnl.Open(protocol); err != nil {
			return err
		}
		v.sockets[protocol] = s
	}
	return s.Ask(request, func(m rtnl.Message) error { return f(m.Data) })
}

// look looks at one area. changing: what was seen was about to change.
func (v *visit) look(a area) (verdict Verdict, failed, changing bool) {
	verdict, err := looks[a].look(v)
	switch {
	case errors.Is(err, rtnl.ErrInterrupted):
		verdict = Verdict{}
		verdict.both("%s are being examined", looks[a].what)
		changing = true
	case err != nil:
		verdict = Verdict{}
		verdict.both("cannot read %s: %v", looks[a].what, err)
		failed = true
	}
	return Verdict{IPv4: few(verdict.IPv4), IPv6: few(verdict.IPv6)}, failed, changing
}

// few makes a list of reasons fit for people: the first of each kind will do, and names that a user chose do not
// reach into an operator's terminal.
func few(reasons []string) []string {
	const enough = 4
	var list []string
	more := 0
	seen := map[string]bool{}
	for _, r := range reasons {
		switch {
		case seen[r]:
		case len(list) == enough:
			more++
		default:
			list = append(list, printable(r))
		}
		seen[r] = true
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("and %d more like that", more))
	}
	return list
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
