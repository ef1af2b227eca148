package program

import (
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/datapath/filter"
)

// Verdict is what becomes of a frame (enum pergola_verdict).
type Verdict uint8

// The verdicts.
const (
	Drop   = Verdict(stagesPergolaVerdictPERGOLA_DROP)
	Lookup = Verdict(stagesPergolaVerdictPERGOLA_LOOKUP)
	Send   = Verdict(stagesPergolaVerdictPERGOLA_SEND)
	Flood  = Verdict(stagesPergolaVerdictPERGOLA_FLOOD)
	UDP    = Verdict(stagesPergolaVerdictPERGOLA_UDP)
	Punt   = Verdict(stagesPergolaVerdictPERGOLA_PUNT)
)

var verdictNames = []string{"drop", "lookup", "send", "flood", "udp", "punt"}

// String is "send" for Send.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// MarshalText is String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Leaves reports whether the frame goes on.
func (v Verdict) Leaves() bool { return v == Send || v == Flood || v == UDP }

// Result is what a filter says (struct pergola_result).
type Result struct {
	Verdict   Verdict        `json:"verdict"`
	Interface uint32         `json:"interface,omitempty"` // Send: number of the node's own
	Queue     uint32         `json:"queue,omitempty"`
	Flood     uint64         `json:"flood,omitempty"` // Flood: bit i is interface i
	To        netip.AddrPort `json:"to,omitzero"`     // UDP
	More      bool           `json:"more,omitempty"`  // Send: the next filter that matches sends a copy
	Arguments [32]byte       `json:"-"`
}

// Filter says what becomes of frames whose key, with the bits of the mask, is this. Key and mask have at most 64 bytes;
// those that are missing do not count.
type Filter struct {
	Table    uint32 // less than MaxTables
	Priority uint32 // the highest that matches counts; of two, the first
	Key      []byte
	Mask     []byte
	Result   Result
}

// check looks at the lengths. Keys of the program have so many bytes; a mask has no bits behind them.
func (f Filter) check(keyBytes int) error {
	switch {
	case f.Table >= MaxTables:
		return fmt.Errorf("there is no table %d: a program has tables 0 to %d", f.Table, MaxTables-1)
	case len(f.Key) != len(f.Mask) || len(f.Key) > keySize:
		return fmt.Errorf("%w: key has %d bytes and mask %d; both have the same, at most %d", filter.ErrLength,
			len(f.Key), len(f.Mask), keySize)
	case len(f.Mask) > keyBytes && !isZeros(f.Mask[keyBytes:]):
		return fmt.Errorf("%w: the mask has bits behind the program's key, which has %d bytes",
			filter.ErrLength, keyBytes)
	}
	return nil
}

func isZeros(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// masked gives key and mask in so many bytes; of the key, what the mask leaves.
func (f Filter) masked(bytes int) (key, mask []byte) {
	key, mask = make([]byte, bytes), make([]byte, bytes)
	copy(key, f.Key)
	copy(mask, f.Mask)
	for i := range key {
		key[i] &= mask[i]
	}
	return key, mask
}

// encode is how programs in user space read a filter.
func (f Filter) encode() (stagesProgramFilter, error) {
	e := stagesProgramFilter{Table: f.Table, Used: 1, Result: f.Result.encode()}
	if err := f.check(keySize); err != nil {
		return e, err
	}
	key, mask := f.masked(keySize)
	for i := range e.Want {
		e.Want[i] = nativeOrder.Uint64(key[8*i:])
		e.Mask[i] = nativeOrder.Uint64(mask[8*i:])
	}
	return e, nil
}

func (r Result) encode() stagesPergolaResult {
	e := stagesPergolaResult{Verdict: uint8(r.Verdict), Interface: r.Interface, Queue: r.Queue, Port: r.To.Port(),
		Arguments: r.Arguments}
	switch r.Verdict {
	case Send:
		if r.More {
			e.More = 1
		}
	case Flood:
		nativeOrder.PutUint64(e.Address[:], r.Flood)
	case UDP:
		e.Address = as16(r.To.Addr())
	default:
	}
	return e
}

// as16 is an address as programs see it; zeros for none.
func as16(a netip.Addr) [16]byte {
	if !a.IsValid() {
		return [16]byte{}
	}
	return a.As16()
}

// Matches is the filter that counts for a key, by the plain rule: the number in the order of filters, from 1; 0: none.
func Matches(filters []Filter, table uint32, key []byte) int {
	best := 0
	for i, f := range filters {
		if f.Table == table && f.matches(key) && (best == 0 || f.Priority > filters[best-1].Priority) {
			best = i + 1
		}
	}
	return best
}

func (f Filter) matches(key []byte) bool {
	for i, m := range f.Mask {
		if (key[i]^f.Key[i])&m != 0 {
			return false
		}
	}
	return true
}
