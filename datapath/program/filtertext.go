package program

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strings"
)

// Text is a filter as ParseFilters reads it.
func (f Filter) Text(fields []Field) string {
	text := f.MatchText(fields) + " -> " + f.Result.String()
	if f.Priority != 0 {
		text = fmt.Sprintf("priority %d %s", f.Priority, text)
	}
	if f.Table != 0 {
		text = fmt.Sprintf("table %d %s", f.Table, text)
	}
	return text
}

// MatchText is which keys match: FIELD=VALUE/MASK..., key=BYTES/BYTES where fields do not say it, or any.
func (f Filter) MatchText(fields []Field) string {
	key, mask := f.masked(keySize)
	rest := bytes.Clone(mask)
	var words []string
	for _, x := range fields {
		clear(rest[x.Offset : x.Offset+x.Size])
		if part := mask[x.Offset : x.Offset+x.Size]; !isZeros(part) {
			words = append(words, x.Name+"="+x.Value(key)+maskText(part))
		}
	}
	switch {
	case !isZeros(rest):
		n := len(bytes.TrimRight(mask, "\x00"))
		return fmt.Sprintf("key=%x/%x", key[:n], mask[:n])
	case words == nil:
		return "any"
	}
	return strings.Join(words, " ")
}

// maskText is what stands behind a value: nothing, /BITS or /VALUE.
func maskText(mask []byte) string {
	ones, prefix := 0, true
	for i, b := range mask {
		n := bits.LeadingZeros8(^b)
		prefix = prefix && (b == 0 || ones == 8*i) && bits.OnesCount8(b) == n
		ones += n
	}
	switch {
	case prefix && ones == 8*len(mask):
		return ""
	case prefix:
		return fmt.Sprintf("/%d", ones)
	case len(mask) <= 8:
		return fmt.Sprintf("/0x%x", mask)
	}
	return "/hex:" + hex.EncodeToString(mask)
}

// Value is the field of a key as filters have it: addresses of four and six bytes as such, where names say so, others
// as a number or bytes.
func (x Field) Value(key []byte) string {
	b := key[x.Offset : x.Offset+x.Size]
	name := strings.ToLower(x.Name)
	switch {
	case x.Size == 4 && (strings.Contains(name, "source") || strings.Contains(name, "dest") ||
		strings.Contains(name, "addr")):
		return netip.AddrFrom4([4]byte(b)).String()
	case x.Size == 16:
		return netip.AddrFrom16([16]byte(b)).String()
	case x.Size == 6:
		return net.HardwareAddr(b).String()
	case x.Size <= 8:
		var n uint64
		for _, digit := range b {
			n = n<<8 | uint64(digit)
		}
		return fmt.Sprint(n)
	}
	return "hex:" + hex.EncodeToString(b)
}

// String is a result as a filter has it behind the arrow.
func (r Result) String() string {
	text := r.Verdict.String()
	switch r.Verdict {
	case Send:
		text += fmt.Sprintf(" %d", r.Interface)
		if r.More {
			text += " more"
		}
	case Flood:
		text += " " + FormatInterfaces(r.Flood)
	case UDP:
		text += " " + r.To.String()
	default:
	}
	if r.Queue != 0 {
		text += fmt.Sprintf(" queue %d", r.Queue)
	}
	if args := bytes.TrimRight(r.Arguments[:], "\x00"); len(args) > 0 {
		text += " args " + hex.EncodeToString(args)
	}
	return text
}
