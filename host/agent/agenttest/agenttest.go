// Package agenttest makes what an agent's tests of labels need: networks as they are stored and observed, and a data
// path that is a map.
package agenttest

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// Resolved is the slice of a topology file, with the ID 7. prev is the version before, or nil.
func Resolved(t *testing.T, file string, prev *slice.Slice) *slice.Slice {
	t.Helper()
	top, found := topology.Parse("lab.yaml", []byte(file))
	if len(found) > 0 {
		t.Fatal(found)
	}
	s, found := topology.Resolve(top, prev)
	if len(found) > 0 {
		t.Fatal(found)
	}
	s.ID = 7
	return s
}

// Seen is a machine on which all nodes of a slice run but some. Ports have the ifindex 100 + n, and the interfaces in
// nodes 500 + n.
func Seen(s *slice.Slice, but ...string) *observe.Snapshot {
	is := &observe.Snapshot{Ports: map[string]int{}, NetNS: map[sliver.ID]uint64{},
		Legs: map[sliver.ID]map[int]int{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		id := sliver.ID{Slice: s.ID, Node: n.Name}
		if slices.Contains(but, n.Name) {
			continue
		}
		is.NetNS[id], is.Legs[id] = uint64(1000+i), map[int]int{}
		for _, p := range n.Interfaces {
			is.Ports[slice.PortName(s.ID, p.Port)] = 100 + int(p.Port)
			is.Legs[id][500+int(p.Port)] = 100 + int(p.Port)
		}
	}
	return is
}

// Entry names an entry of Labels, as labels.Key does.
type Entry struct {
	Space  uint32
	Number uint32
	FTN    bool
}

// Labels is a data path of labels alone. Of Refuse none can be written, of Keep none removed.
type Labels struct {
	machine.DataPath
	Is           map[Entry]datapath.NHLFE
	Writes       int
	Refuse, Keep map[Entry]bool
	Rules        map[uint32][]datapath.LabelRule
	Share        float64 // of best effort
	Work         datapath.ReservedWork
}

// NewLabels gives a data path that has some entries.
func NewLabels(is map[Entry]datapath.NHLFE) *Labels {
	return &Labels{Is: is, Refuse: map[Entry]bool{}, Keep: map[Entry]bool{},
		Rules: map[uint32][]datapath.LabelRule{}}
}

func (l *Labels) put(e Entry, n datapath.NHLFE) error {
	if l.Writes++; l.Refuse[e] {
		return errors.New("no space left")
	}
	l.Is[e] = n
	return nil
}

func (l *Labels) remove(e Entry) error {
	if l.Keep[e] {
		return errors.New("operation not permitted")
	}
	delete(l.Is, e)
	return nil
}

// SetLabel implements machine.DataPath.
func (l *Labels) SetLabel(space, label uint32, n datapath.NHLFE) error {
	return l.put(Entry{space, label, false}, n)
}

// SetFTN implements machine.DataPath.
func (l *Labels) SetFTN(space, ftn uint32, n datapath.NHLFE) error {
	return l.put(Entry{space, ftn, true}, n)
}

// DeleteLabel implements machine.DataPath.
func (l *Labels) DeleteLabel(space, label uint32) error { return l.remove(Entry{space, label, false}) }

// DeleteFTN implements machine.DataPath.
func (l *Labels) DeleteFTN(space, ftn uint32) error { return l.remove(Entry{space, ftn, true}) }

// Reserved implements machine.DataPath: nothing was measured.
func (l *Labels) Reserved(space, ftn uint32) (datapath.Reserved, error) {
	return datapath.Reserved{Reservation: l.Is[Entry{space, ftn, true}].Reservation}, nil
}

// BestEffort implements machine.DataPath.
func (l *Labels) BestEffort() (share float64, err error) { return l.Share, nil }

// ReservedWork implements machine.DataPath.
func (l *Labels) ReservedWork() (datapath.ReservedWork, error) { return l.Work, nil }

// SetLabelRules implements machine.DataPath.
func (l *Labels) SetLabelRules(space uint32, rules []datapath.LabelRule) error {
	if l.Writes++; rules != nil && l.Refuse[Entry{Space: space}] {
		return errors.New("no space left")
	}
	if l.Rules[space] = rules; rules == nil {
		delete(l.Rules, space)
	}
	return nil
}

// LabelRules implements machine.DataPath.
func (l *Labels) LabelRules() (map[uint32][]datapath.LabelRule, error) {
	return maps.Clone(l.Rules), nil
}

// AllLabels implements machine.DataPath.
func (l *Labels) AllLabels() iter.Seq2[datapath.LabelEntry, error] {
	return func(yield func(datapath.LabelEntry, error) bool) {
		for e, n := range l.Is {
			if !yield(datapath.LabelEntry{Space: e.Space, Number: e.Number, FTN: e.FTN, NHLFE: n}, nil) {
				return
			}
		}
	}
}
