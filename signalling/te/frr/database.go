// Package frr reads the traffic engineering database of FRR's ospfd and isisd, and writes the commands that tell them
// of a link: text in, text out. vtysh is run by the caller.
package frr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/signalling/te"
)

// Commands whose output Database reads.
const (
	ShowOSPF = "show ip ospf mpls-te database json"
	ShowISIS = "show isis mpls-te database json"
)

type output struct {
	TED *struct {
		Vertices []vertex `json:"vertices"`
		Edges    []edge   `json:"edges"`
	} `json:"ted"`
}

type vertex struct {
	ID       int64  `json:"vertex-id"`
	Status   string `json:"status"`
	Name     string `json:"name"`
	RouterID string `json:"router-id"`
}

type edge struct {
	Status     string     `json:"status"`
	Advertised string     `json:"advertised-router"`
	From       *int64     `json:"local-vertex-id"`
	To         *int64     `json:"remote-vertex-id"`
	Metric     uint32     `json:"metric"`
	Attributes attributes `json:"edge-attributes"`
}

type attributes struct {
	TEMetric   uint32                `json:"te-metric"`
	Groups     uint32                `json:"admin-group"`
	Local      string                `json:"local-address"`
	Remote     string                `json:"remote-address"`
	Bandwidth  *float64              `json:"max-link-bandwidth"`
	Reservable *float64              `json:"max-resv-link-bandwidth"`
	Unreserved []map[string]*float64 `json:"unreserved-bandwidth"`
	SRLGs      []struct {
		SRLG uint32 `json:"srlg"`
	} `json:"srlgs"`
}

// Database reads what the commands above print: one object, with isisd one for each area. Links that are not
// advertised for traffic engineering are left out, and those of IPv6 alone.
//
// FRR leaves out LANs, or one direction of them: an Ethernet that paths are to go over is configured as a
// point-to-point network. Before 10.7 it also left out interfaces whose address ends in 0 (one end of a /31).
func Database(b []byte) (*te.Database, error) {
	var nodes []te.Node
	var links []te.Link
	dec := json.NewDecoder(bytes.NewReader(finite(b)))
	for objects := 0; ; objects++ {
		var o output
		err := dec.Decode(&o)
		if errors.Is(err, io.EOF) && objects > 0 {
			return te.New(nodes, links), nil
		}
		if err == nil && o.TED == nil {
			err = errors.New("no member ted")
		}
		if err != nil {
			return nil, fmt.Errorf("FRR's traffic engineering database: %w, in what begins with %q", err,
				start(b))
		}
		ids := identifiers(o.TED.Vertices, o.TED.Edges)
		for _, v := range o.TED.Vertices {
			if v.Status == orphan || v.Status == deleted {
				continue
			}
			n := te.Node{ID: ids[v.ID], Name: v.Name}
			n.Address, _ = netip.ParseAddr(v.RouterID) // a router that advertises none has no address
			nodes = append(nodes, n)
		}
		for _, e := range o.TED.Edges {
			if l, ok := e.link(ids); ok {
				links = append(links, l)
			}
		}
	}
}

// What FRR says of what is about to be removed.
const (
	deleted = "Delete"
	orphan  = "Orphan"
)

// identifiers names routers as they are named where they advertise links: by OSPF router ID, or IS-IS system ID.
func identifiers(vertices []vertex, edges []edge) map[int64]string {
	ids := make(map[int64]string, len(vertices))
	for _, v := range vertices {
		if ids[v.ID] = v.RouterID; v.RouterID == "" {
			ids[v.ID] = "router " + strconv.FormatInt(v.ID, 10)
		}
	}
	for _, e := range edges {
		if e.From != nil && e.Advertised != "" {
			ids[*e.From] = e.Advertised
		}
	}
	return ids
}

// link gives an edge as a link; false: it is none for LSPs.
func (e edge) link(ids map[int64]string) (te.Link, bool) {
	a := e.Attributes
	l := te.Link{Metric: e.Metric, TEMetric: a.TEMetric, Groups: a.Groups}
	if e.Status == orphan || e.Status == deleted || e.From == nil || a.Reservable == nil || len(a.Unreserved) == 0 {
		return l, false
	}
	l.From, l.To = ids[*e.From], a.Remote
	if e.To != nil {
		l.To = ids[*e.To]
	}
	l.Local, _ = netip.ParseAddr(a.Local)
	l.Remote, _ = netip.ParseAddr(a.Remote)
	if l.From == "" || l.To == "" || !l.Local.Is4() {
		return l, false
	}
	l.Bandwidth, l.Reservable = bandwidth(a.Bandwidth), bandwidth(a.Reservable)
	for _, class := range a.Unreserved {
		for name, value := range class {
			var p int
			if _, err := fmt.Sscanf(name, "class-type-%d", &p); err == nil && p >= 0 && p < te.Priorities {
				l.Unreserved[p] = bandwidth(value)
			}
		}
	}
	for _, s := range a.SRLGs {
		l.SRLGs = append(l.SRLGs, s.SRLG)
	}
	return l, true
}

// bandwidth reads one; one that is not finite, or below nothing, is none.
func bandwidth(f *float64) uint64 {
	if f == nil {
		return 0
	}
	b, err := te.BandwidthOf(float32(*f))
	if err != nil {
		return 0
	}
	return b
}

var infinite = regexp.MustCompile(`^-?(Infinity|NaN)`)

// finite writes null for NaN and Infinity. FRR prints them for what any router can advertise, and they are not JSON.
func finite(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for text := false; len(b) > 0; {
		n := 1
		switch {
		case text && b[0] == '\\' && len(b) > 1:
			n = 2
		case b[0] == '"':
			text = !text
		case !text && strings.IndexByte("-IN", b[0]) >= 0:
			if word := infinite.Find(b); word != nil {
				out, b = append(out, "null"...), b[len(word):]
				continue
			}
		}
		out, b = append(out, b[:n]...), b[n:]
	}
	return out
}

// start is what a message of FRR's says.
func start(b []byte) []byte {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return line[:min(len(line), 80)]
}
