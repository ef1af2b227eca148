package program

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// ParseFilters reads filters, one a line:
//
//	[table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT [queue N] [args BYTES]
//
//	destination=10.1.0.0/16 protocol=17     -> send 2 queue 1 args 02:00:00:00:00:01
//	priority 5 type=0x88b5                  -> flood 1,2,3
//	key=0a01/ff00                           -> udp 192.0.2.7:4000
//	any                                     -> punt
//
// Fields are those of the program's key. A value is a number, an IP address, a MAC address or bytes (hex:0a01); it is
// compared in network order. The mask after a slash is the number of leading bits, or a value. key=BYTES/BYTES stands
// for the key's first bytes. A # begins a comment. An error names the line.
func ParseFilters(r io.Reader, fields []Field) ([]Filter, error) {
	var all []Filter
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		f, err := parseFilter(line, fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, f)
	}
	return all, lines.Err()
}

func parseFilter(line string, fields []Field) (Filter, error) {
	match, result, ok := strings.Cut(line, "->")
	if !ok {
		return Filter{}, fmt.Errorf("a filter is FIELD=VALUE... -> VERDICT; there is no ->")
	}
	f, err := parseMatch(match, fields)
	if err == nil {
		f.Result, err = parseResult(strings.Fields(result))
	}
	return f, err
}

// ParseFilter reads one filter.
func ParseFilter(line string, fields []Field) (Filter, error) { return parseFilter(line, fields) }

// ParseMatch reads what names a filter within its program: a line of ParseFilters, whose verdict may be missing, and
// does not count.
func ParseMatch(line string, fields []Field) (Filter, error) {
	match, _, _ := strings.Cut(line, "->")
	return parseMatch(match, fields)
}

// parseMatch reads what stands before the arrow.
func parseMatch(text string, fields []Field) (Filter, error) {
	f := Filter{Key: make([]byte, keySize), Mask: make([]byte, keySize)}
	words := strings.Fields(text)
	if len(words) == 0 {
		return f, fmt.Errorf("nothing says which keys match; what matches every key is called any")
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		var err error
		switch word {
		case "any":
		case "table", "priority":
			if len(words) == 0 {
				return f, fmt.Errorf("%s has no number", word)
			}
			err = f.setNumber(word, words[0])
			words = words[1:]
		default:
			err = f.match(word, fields)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *Filter) setNumber(what, text string) error {
	n, err := number(what, text)
	switch {
	case err != nil:
		return err
	case what == "priority":
		f.Priority = n
	case n >= MaxTables:
		return fmt.Errorf("there is no table %d: a program has tables 0 to %d", n, MaxTables-1)
	default:
		f.Table = n
	}
	return nil
}

// match adds one word FIELD=VALUE/MASK.
func (f *Filter) match(word string, fields []Field) error {
	name, text, ok := strings.Cut(word, "=")
	if !ok {
		return fmt.Errorf("%q is no FIELD=VALUE", word)
	}
	text, maskText, masked := strings.Cut(text, "/")
	if name == "key" && !hasField(fields, name) {
		return f.matchBytes(text, maskText, masked)
	}
	i := slices.IndexFunc(fields, func(x Field) bool { return x.Name == name })
	if i < 0 {
		var names []string
		for _, x := range fields {
			names = append(names, x.Name)
		}
		if names == nil {
			return fmt.Errorf("the program has no PERGOLA_KEY, so fields have no names: " +
				"use key=BYTES/BYTES")
		}
		return fmt.Errorf("the key has no field %q; it has %s%s", name, strings.Join(names, ", "),
			meant(wording.Nearest(name, names)))
	}
	field := fields[i]
	value, err := parseValue(text, field.Size)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	mask := slices.Repeat([]byte{0xff}, field.Size)
	if bits, err := strconv.Atoi(maskText); masked && err == nil && !strings.HasPrefix(maskText, "0x") {
		if bits < 0 || bits > 8*field.Size {
			return fmt.Errorf("%s: a field of %d bits has no prefix of %d", name, 8*field.Size, bits)
		}
		for b := bits; b < 8*field.Size; b++ {
			mask[b/8] &^= 0x80 >> (b % 8)
		}
	} else if masked {
		if mask, err = parseValue(maskText, field.Size); err != nil {
			return fmt.Errorf("%s: mask: %w", name, err)
		}
	}
	copy(f.Key[field.Offset:], value)
	copy(f.Mask[field.Offset:], mask)
	return nil
}

// meant asks back where a name is like one that is there.
func meant(near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", near)
}

func hasField(fields []Field, name string) bool {
	return slices.ContainsFunc(fields, func(x Field) bool { return x.Name == name })
}

func (f *Filter) matchBytes(text, maskText string, masked bool) error {
	value, err := hex.DecodeString(text)
	mask := slices.Repeat([]byte{0xff}, len(value))
	if err == nil && masked {
		mask, err = hex.DecodeString(maskText)
	}
	if err != nil || len(value) != len(mask) || len(value) > keySize || len(value) == 0 {
		return fmt.Errorf("key is BYTES/BYTES in hexadecimal, as many before the slash as behind it, "+
			"at most %d", keySize)
	}
	copy(f.Key, value)
	copy(f.Mask, mask)
	return nil
}

// parseValue gives the bytes of a value, in network order.
func parseValue(text string, size int) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, "hex:"); ok {
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != size {
			return nil, fmt.Errorf("%q does not have %d bytes in hexadecimal", text, size)
		}
		return b, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		if b := a.AsSlice(); len(b) == size {
			return b, nil
		}
		return nil, fmt.Errorf("%s has not the field's %d bytes", a, size)
	}
	if m, err := net.ParseMAC(text); err == nil && len(m) == size {
		return m, nil
	}
	n, ok := new(big.Int).SetString(text, 0)
	if !ok || n.Sign() < 0 {
		return nil, fmt.Errorf("%q is no number, address or hex:BYTES", text)
	}
	if n.BitLen() > 8*size {
		return nil, fmt.Errorf("%s does not fit into %d bytes", text, size)
	}
	return n.FillBytes(make([]byte, size)), nil
}

// parseResult reads what stands behind the arrow.
func parseResult(words []string) (r Result, err error) {
	none := fmt.Errorf(
		"a verdict is one of: send INTERFACE [more], flood INTERFACE,..., udp ADDRESS:PORT, drop, punt",
	)
	if len(words) == 0 {
		return r, none
	}
	verdict, argument := words[0], ""
	if len(words) > 1 {
		argument = words[1]
	}
	switch verdict {
	case "send":
		r.Verdict = Send
		r.Interface, err = number("interface", argument)
		if len(words) > 2 && words[2] == "more" {
			r.More, words = true, words[1:]
		}
	case "flood":
		r.Verdict = Flood
		r.Flood, err = ParseInterfaces(argument)
	case "udp":
		r.Verdict = UDP
		if r.To, err = netip.ParseAddrPort(argument); err != nil {
			err = fmt.Errorf("%q is no ADDRESS:PORT", argument)
		}
	case "drop", "punt":
		r.Verdict = Verdict(slices.Index(verdictNames, verdict))
		words = append([]string{""}, words...) // has no argument
	default:
		return r, none
	}
	if err != nil {
		return r, err
	}
	return r, r.setOptions(words[2:])
}

func (r *Result) setOptions(words []string) (err error) {
	for ; len(words) > 0 && err == nil; words = words[2:] {
		if len(words) == 1 {
			return fmt.Errorf("nothing stands behind %q", words[0])
		}
		switch words[0] {
		case "queue":
			r.Queue, err = number("queue", words[1])
		case "args":
			err = r.setArguments(words[1])
		default:
			err = fmt.Errorf("%q is none of: queue, args", words[0])
		}
	}
	return err
}

func number(what, text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %q is no number", what, text)
	}
	return uint32(n), nil
}

// setArguments takes bytes in hexadecimal; colons between them, as in MAC addresses, and commas do not count.
func (r *Result) setArguments(text string) error {
	b, err := hex.DecodeString(strings.NewReplacer(":", "", ",", "").Replace(text))
	if err != nil || len(b) > len(r.Arguments) {
		return fmt.Errorf("args %q are not at most %d bytes in hexadecimal", text, len(r.Arguments))
	}
	copy(r.Arguments[:], b)
	return nil
}

// ParseInterfaces reads a list of interfaces, as 1,2,5, into bits.
func ParseInterfaces(text string) (bits uint64, err error) {
	const highest = 63
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > highest {
			return 0, fmt.Errorf("%q is no list of interfaces from 1 to %d: 1,2,3", text, highest)
		}
		bits |= 1 << n
	}
	return bits, nil
}

// FormatInterfaces is the reverse.
func FormatInterfaces(bits uint64) string {
	var all []string
	for n := range 64 {
		if bits>>n&1 != 0 {
			all = append(all, strconv.Itoa(n))
		}
	}
	return strings.Join(all, ",")
}
