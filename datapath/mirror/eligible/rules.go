package eligible

import (
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Of linux/fib_rules.h.
const (
	ruleHeader    = 12
	rulePermanent = 1 << 0
	ruleInvert    = 1 << 1
)

// kernelRules are the rules that a namespace is born with: table by priority. Without the last one, routes of table
// default are not found; those are not mirrored anyway.
var kernelRules = map[uint32]uint32{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT}

// rule is a policy routing rule. Its words are those of `ip rule`, without priority.
type rule struct {
	priority, table uint32
	plain           bool // selects everything, for its table
	words           string
}

func lookAtRules(v *visit) (Verdict, error) {
	ipv4, err := otherRules(v, unix.AF_INET)
	if err != nil {
		return Verdict{}, err
	}
	ipv6, err := otherRules(v, unix.AF_INET6)
	return Verdict{IPv4: ipv4, IPv6: ipv6}, err
}

// otherRules says in what the rules of a family differ from the kernel's own.
func otherRules(v *visit, family byte) ([]string, error) {
	var reasons []string
	missing := map[uint32]bool{0: true, 32766: true}
	header := make([]byte, ruleHeader)
	header[0] = family
	err := v.route(rtnl.Request(unix.RTM_GETRULE, unix.NLM_F_DUMP, header), func(data []byte) error {
		r, err := parseRule(data)
		if err != nil {
			return err
		}
		if table, known := kernelRules[r.priority]; known && r.plain && r.table == table {
			delete(missing, r.priority)
		} else {
			reasons = append(reasons, fmt.Sprintf("policy rule %d: %s", r.priority, r.words))
		}
		return nil
	})
	for _, priority := range []uint32{0, 32766} {
		if missing[priority] {
			reasons = append(reasons, fmt.Sprintf("policy rule %d (lookup %s) is missing", priority,
				tableName(kernelRules[priority])))
		}
	}
	return reasons, err
}

func parseRule(data []byte) (rule, error) {
	if len(data) < ruleHeader {
		return rule{}, fmt.Errorf("read policy rule: %w", unix.EBADMSG)
	}
	family, dstLen, srcLen, tos := data[0], data[1], data[2], data[3]
	r := rule{table: uint32(data[4]), plain: dstLen == 0 && srcLen == 0 && tos == 0 &&
		data[7] == unix.FR_ACT_TO_TBL}
	flags := byteOrder.Uint32(data[8:])
	r.plain = r.plain && flags&^rulePermanent == 0
	from, to, selectors := "all", "", ""
	suppress := ""
	err := attributes(data, ruleHeader, func(a *rtnl.Attrs) {
		switch a.Kind {
		case unix.FRA_PRIORITY:
			r.priority = a.U32()
		case unix.FRA_TABLE:
			r.table = a.U32()
		case unix.FRA_PROTOCOL, unix.FRA_PAD: // the daemon that set it: no selector
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			if n := a.U32(); n != ^uint32(0) {
				suppress, r.plain = " suppress", false
			}
		case unix.FRA_SRC:
			from, r.plain = prefix(a.Value, srcLen), false
		case unix.FRA_DST:
			to, r.plain = " to "+prefix(a.Value, dstLen), false
		default:
			selectors += selector(a)
			r.plain = false
		}
	})
	if tos != 0 {
		selectors += fmt.Sprintf(" tos %#x", tos)
	}
	if flags&ruleInvert != 0 {
		from = "not " + from
	}
	r.words = "from " + from + to + selectors + " " + action(data[7], r.table) + suppress
	if family != unix.AF_INET && family != unix.AF_INET6 {
		r.plain = false
	}
	return r, err
}

// selector names what else a rule asks for.
func selector(a *rtnl.Attrs) string {
	switch a.Kind {
	case unix.FRA_IIFNAME:
		return " iif " + a.Text()
	case unix.FRA_OIFNAME:
		return " oif " + a.Text()
	case unix.FRA_FWMARK:
		return fmt.Sprintf(" fwmark %#x", a.U32())
	case unix.FRA_FWMASK:
		return fmt.Sprintf("/%#x", a.U32())
	case unix.FRA_GOTO:
		return fmt.Sprintf(" goto %d", a.U32())
	case unix.FRA_L3MDEV:
		return " l3mdev"
	case unix.FRA_IP_PROTO:
		return fmt.Sprintf(" ipproto %d", a.U8())
	case unix.FRA_SPORT_RANGE:
		return " sport"
	case unix.FRA_DPORT_RANGE:
		return " dport"
	default:
		return ""
	}
}

func prefix(address []byte, length byte) string {
	a, ok := netip.AddrFromSlice(address)
	if !ok {
		return "?"
	}
	return netip.PrefixFrom(a, int(length)).String()
}

func action(number byte, table uint32) string {
	switch number {
	case unix.FR_ACT_TO_TBL:
		return "lookup " + tableName(table)
	case unix.FR_ACT_GOTO:
		return "goto"
	case unix.FR_ACT_NOP:
		return "nop"
	case unix.FR_ACT_BLACKHOLE:
		return "blackhole"
	case unix.FR_ACT_UNREACHABLE:
		return "unreachable"
	case unix.FR_ACT_PROHIBIT:
		return "prohibit"
	default:
		return fmt.Sprintf("action %d", number)
	}
}

func tableName(table uint32) string {
	switch table {
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	default:
		return strconv.FormatUint(uint64(table), 10)
	}
}
