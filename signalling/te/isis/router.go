// Package isis is what IS-IS says of links for traffic engineering (RFC 5305, and SRLGs of RFC 5307) as bytes: the TLVs
// of a router's LSPs, which have their headers elsewhere.
package isis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/internal/attribute"
)

const (
	tlvNeighbour = 22 // extended IS reachability
	tlvAddress   = 134
	tlvName      = 137
	tlvSRLG      = 138
	maxTLV       = 255
	systemLength = 6
	endLength    = systemLength + 1          // with the number of a LAN, 0: none
	linkHeader   = endLength + 3 + 1         // metric, length of sub-TLVs
	srlgHeader   = endLength + 1 + 4 + 4     // flags, addresses
	maxMetric    = 1<<24 - 1                 // of both metrics
	numbered     = 1                         // a flag: the link has addresses
	maxSRLGs     = (maxTLV - srlgHeader) / 4 // of one TLV
)

var sub = map[byte]attribute.Kind{3: attribute.Groups, 6: attribute.Local, 8: attribute.Remote, 9: attribute.Bandwidth,
	10: attribute.Reservable, 11: attribute.Unreserved, 18: attribute.TEMetric}

var order = []byte{3, 6, 8, 9, 10, 11, 18}

// unreserved is the sub-TLV that makes a neighbour a link for LSPs.
const unreserved = 11

// System is a system identifier.
type System [systemLength]byte

func (s System) String() string {
	return fmt.Sprintf("%02x%02x.%02x%02x.%02x%02x", s[0], s[1], s[2], s[3], s[4], s[5])
}

// Router is what a router says of itself. Its links are those for LSPs.
type Router struct {
	System  System
	Name    string
	Address netip.Addr // TE router ID
	Links   []te.Link
}

var errCut = errors.New("it is cut off")

// Decode reads the TLVs of a router's LSPs, one slice for each fragment. Other TLVs than those above are ignored.
func Decode(s System, fragments ...[]byte) (Router, error) {
	r := Router{System: s}
	var risks []te.Link
	for _, b := range fragments {
		err := tlvs(b, func(kind byte, v []byte) (err error) {
			switch kind {
			case tlvNeighbour:
				return r.readLinks(v)
			case tlvAddress:
				if len(v) != 4 {
					return fmt.Errorf("a router ID of %d bytes", len(v))
				}
				r.Address = netip.AddrFrom4([4]byte(v))
			case tlvName:
				r.Name = string(v)
			case tlvSRLG:
				var l te.Link
				l, err = r.readSRLGs(v)
				risks = append(risks, l)
			}
			return err
		})
		if err != nil {
			return Router{}, fmt.Errorf("IS-IS LSP of %s: %w", s, err)
		}
	}
	for _, risk := range risks {
		for i, l := range r.Links {
			if l.To == risk.To && l.Local == risk.Local && (l.LAN || l.Remote == risk.Remote) {
				r.Links[i].SRLGs = append(l.SRLGs, risk.SRLGs...)
			}
		}
	}
	return r, nil
}

func tlvs(b []byte, f func(byte, []byte) error) error {
	for len(b) > 0 {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return errCut
		}
		n := 2 + int(b[1])
		if err := f(b[0], b[2:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// readEnd reads the router or LAN at the other end of a link.
func (r *Router) readEnd(v []byte) te.LinkID {
	id := te.LinkID{From: r.System.String(), To: System(v[:systemLength]).String(), LAN: v[systemLength] != 0}
	if id.LAN {
		id.To = fmt.Sprintf("%s.%02x", id.To, v[systemLength])
	}
	return id
}

func (r *Router) readLinks(v []byte) error {
	for len(v) > 0 {
		if len(v) < linkHeader || len(v) < linkHeader+int(v[linkHeader-1]) {
			return errCut
		}
		n := linkHeader + int(v[linkHeader-1])
		l := te.Link{LinkID: r.readEnd(v), Metric: binary.BigEndian.Uint32(v[endLength-1:]) & maxMetric}
		seen := make(map[byte]bool)
		err := tlvs(v[linkHeader:n], func(kind byte, v []byte) error {
			k, known := sub[kind]
			if !known || seen[kind] {
				return nil
			}
			seen[kind] = true
			return attribute.Read(&l, k, v)
		})
		if err != nil {
			return fmt.Errorf("the link to %s: %w", l.To, err)
		}
		if l.LAN {
			l.Remote = netip.Addr{}
		}
		if seen[unreserved] {
			r.Links = append(r.Links, l)
		}
		v = v[n:]
	}
	return nil
}

func (r *Router) readSRLGs(v []byte) (l te.Link, err error) {
	if len(v) < srlgHeader {
		return l, errCut
	}
	if v[endLength]&numbered == 0 {
		return l, nil // of a link without addresses
	}
	l.LinkID = r.readEnd(v)
	addresses := v[endLength+1 : srlgHeader]
	err = errors.Join(attribute.Read(&l, attribute.Local, addresses[:4]),
		attribute.Read(&l, attribute.Remote, addresses[4:]),
		attribute.Read(&l, attribute.SRLGs, v[srlgHeader:]))
	return l, err
}

// Encode writes TLVs that say the same; each is to stay whole when they are divided into fragments.
func (r Router) Encode() (b [][]byte, err error) {
	if r.Address.Is4() {
		b = append(b, tlv(tlvAddress, r.Address.AsSlice()))
	}
	if r.Name != "" {
		b = append(b, tlv(tlvName, []byte(r.Name)[:min(len(r.Name), maxTLV)]))
	}
	for _, l := range r.Links {
		end, err := writeEnd(l.LinkID)
		if err != nil {
			return nil, fmt.Errorf("IS-IS LSP of %s: %w", r.System, err)
		}
		if l.Metric > maxMetric || l.TEMetric > maxMetric || l.Local.Is6() || l.Remote.Is6() {
			return nil, fmt.Errorf("IS-IS LSP of %s: the link %s has a metric of more than 24 bits, or "+
				"IPv6 addresses", r.System, l.LinkID)
		}
		b = append(b, tlv(tlvNeighbour, writeLink(end, l)))
		for risks := l.SRLGs; len(risks) > 0 && l.Local.IsValid(); {
			n := min(len(risks), maxSRLGs)
			b = append(b, tlv(tlvSRLG, writeSRLGs(end, l, risks[:n])))
			risks = risks[n:]
		}
	}
	return b, nil
}

func tlv(kind byte, v []byte) []byte { return append([]byte{kind, byte(len(v))}, v...) }

func writeEnd(id te.LinkID) (b []byte, err error) {
	var s System
	var lan byte
	form, want := "%02x%02x.%02x%02x.%02x%02x", systemLength
	parts := []any{&s[0], &s[1], &s[2], &s[3], &s[4], &s[5]}
	if id.LAN {
		form, want, parts = form+".%02x", endLength, append(parts, &lan)
	}
	if n, err := fmt.Sscanf(id.To, form, parts...); err != nil || n != want || id.LAN != (lan != 0) {
		return nil, fmt.Errorf("the link %s: its other end is no system identifier", id)
	}
	return append(s[:], lan), nil
}

func writeLink(end []byte, l te.Link) []byte {
	b := append([]byte(nil), end...)
	b = append(b, byte(l.Metric>>16), byte(l.Metric>>8), byte(l.Metric), 0)
	for _, kind := range order {
		v := attribute.Write(l, sub[kind])
		if sub[kind] == attribute.TEMetric && v != nil {
			v = v[1:]
		}
		if v != nil {
			b = append(b, tlv(kind, v)...)
		}
	}
	b[linkHeader-1] = byte(len(b) - linkHeader)
	return b
}

func writeSRLGs(end []byte, l te.Link, risks []uint32) []byte {
	b := append(append([]byte(nil), end...), numbered)
	for _, a := range []netip.Addr{l.Local, l.Remote} {
		if a.IsValid() {
			b = append(b, a.AsSlice()...)
		} else {
			b = append(b, 0, 0, 0, 0)
		}
	}
	return append(b, attribute.Write(te.Link{SRLGs: risks}, attribute.SRLGs)...)
}

// TE makes a traffic engineering database of what routers say.
func TE(routers []Router) *te.Database {
	nodes := make([]te.Node, 0, len(routers))
	var links []te.Link
	for _, r := range routers {
		nodes = append(nodes, te.Node{ID: r.System.String(), Name: r.Name, Address: r.Address})
		links = append(links, r.Links...)
	}
	return te.New(nodes, links)
}
