package ospf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/te"
)

const (
	maxAge     = 3600 // seconds: an LSA of this age is removed
	maxAgeDiff = 900  // LSAs whose ages differ less are equally new
)

// Database is the newest LSA of each that was heard, of one area. The zero value is empty.
type Database struct {
	held map[key]entry
}

type key struct {
	kind   uint8
	id     uint32
	router netip.Addr
}

func (k key) compare(o key) int {
	return cmp.Or(k.router.Compare(o.router), cmp.Compare(k.kind, o.kind), cmp.Compare(k.id, o.id))
}

type entry struct {
	header
	born    time.Duration
	te      LSA
	metrics map[netip.Addr]uint16 // of a router LSA, by the address of its interface
}

// Put takes an LSA that was heard: a router LSA, or one of traffic engineering; others it does not keep. It tells
// whether the LSA is newer than what it has, and is to be flooded on.
func (d *Database) Put(now time.Duration, b []byte) (bool, error) {
	h, err := readHeader(b)
	if err != nil {
		return false, fmt.Errorf("OSPF LSA: %w", err)
	}
	e := entry{header: h, born: now - time.Duration(h.age)*time.Second}
	switch {
	case h.kind == typeRouter:
		e.metrics, err = readMetrics(b)
	case h.kind == typeArea && h.id>>24 == opaqueTE:
		e.te, err = Decode(b)
	default:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	k := key{h.kind, h.id, h.router}
	old, had := d.held[k]
	if had && !e.newer(old, now) {
		return false, nil
	}
	if h.age >= maxAge {
		delete(d.held, k)
		return had, nil
	}
	if d.held == nil {
		d.held = make(map[key]entry)
	}
	d.held[k] = e
	return true, nil
}

// newer is RFC 2328, section 13.1.
func (e entry) newer(old entry, now time.Duration) bool {
	age := min(int((now-old.born)/time.Second), maxAge)
	switch {
	case e.sequence != old.sequence:
		return e.sequence > old.sequence
	case e.checksum != old.checksum:
		return e.checksum > old.checksum
	case (e.age >= maxAge) != (age >= maxAge):
		return e.age >= maxAge
	}
	return age-int(e.age) > maxAgeDiff
}

// Expire removes what has not been refreshed in its time.
func (d *Database) Expire(now time.Duration) {
	for k, e := range d.held {
		if now-e.born >= maxAge*time.Second {
			delete(d.held, k)
		}
	}
}

// TE makes a traffic engineering database of it.
func (d *Database) TE() *te.Database {
	nodes := make(map[netip.Addr]te.Node)
	var links []te.Link
	for _, k := range slices.SortedFunc(maps.Keys(d.held), key.compare) {
		e, n := d.held[k], nodes[k.router]
		if n.ID = k.router.String(); e.te.Address.IsValid() {
			n.Address = e.te.Address
		}
		nodes[k.router] = n
		if e.te.Link == nil {
			continue
		}
		l := *e.te.Link
		l.Metric = uint32(d.held[key{typeRouter, binary.BigEndian.Uint32(k.router.AsSlice()), k.router}].
			metrics[l.Local])
		links = append(links, l)
	}
	all := make([]te.Node, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, n)
	}
	return te.New(all, links)
}

// What the links of a router LSA have before and after their metric.
const (
	routerHeader = 4
	routerLink   = 12
	tosLength    = 4
	stub         = 3
)

// readMetrics reads the metrics of a router LSA (RFC 2328, section A.4.2).
func readMetrics(b []byte) (map[netip.Addr]uint16, error) {
	b = b[headerLength:]
	if len(b) < routerHeader {
		return nil, fmt.Errorf("OSPF router LSA: %w", errCut)
	}
	metrics := make(map[netip.Addr]uint16)
	n := int(binary.BigEndian.Uint16(b[2:]))
	for b = b[routerHeader:]; n > 0; n-- {
		if len(b) < routerLink {
			return nil, fmt.Errorf("OSPF router LSA: %w", errCut)
		}
		if b[8] != stub {
			metrics[netip.AddrFrom4([4]byte(b[4:]))] = binary.BigEndian.Uint16(b[10:])
		}
		b = b[min(routerLink+int(b[9])*tosLength, len(b)):]
	}
	return metrics, nil
}
