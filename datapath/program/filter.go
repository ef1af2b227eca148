package program

import (
	"fmt"
	"net/netip"
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
	Arguments [32]byte       `json:"-"`
}

// Filter says what becomes of frames whose key, with the bits of the mask, is this. Key and mask have at most 64 bytes;
// those that are missing do not count.
type Filter struct {
	Table    uint32
	Priority int // the highest that matches counts; of two, the first
	Key      []byte
	Mask     []byte
	Result   Result
}

// MaxFilters is how many the small table of this package holds.
const MaxFilters = 64

// SetFilters replaces all filters.
func (p *Program) SetFilters(filters []Filter) error {
	if len(filters) > MaxFilters {
		return fmt.Errorf("set %d filters: there is room for %d", len(filters), MaxFilters)
	}
	sorted := byPriority(filters)
	table := p.maps[stagesMapProgramFilters]
	for i := range uint32(MaxFilters) {
		var f stagesProgramFilter
		if int(i) < len(sorted) {
			var err error
			if f, err = sorted[i].encode(); err != nil {
				return fmt.Errorf("set filter %d: %w", i+1, err)
			}
		}
		if err := table.Put(i, f); err != nil {
			return fmt.Errorf("set filter %d: %w", i+1, err)
		}
	}
	return nil
}

func (f Filter) encode() (stagesProgramFilter, error) {
	e := stagesProgramFilter{Table: f.Table, Used: 1}
	if len(f.Key) != len(f.Mask) || len(f.Key) > keySize {
		return e, fmt.Errorf("key has %d bytes and mask %d; both have the same, at most %d", len(f.Key),
			len(f.Mask), keySize)
	}
	var key, mask [keySize]byte
	copy(key[:], f.Key)
	copy(mask[:], f.Mask)
	for i := range key {
		key[i] &= mask[i]
	}
	for i := range e.Want {
		e.Want[i] = nativeOrder.Uint64(key[8*i:])
		e.Mask[i] = nativeOrder.Uint64(mask[8*i:])
	}
	e.Result = f.Result.encode()
	return e, nil
}

func (r Result) encode() stagesPergolaResult {
	e := stagesPergolaResult{Verdict: uint8(r.Verdict), Interface: r.Interface, Queue: r.Queue, Port: r.To.Port(),
		Arguments: r.Arguments}
	switch r.Verdict {
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
