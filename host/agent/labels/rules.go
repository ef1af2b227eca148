package labels

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// Rule gives packets the labels of an LSP because of what they are.
type Rule struct {
	LSP string
	datapath.LabelRule
}

// AddRules adds those of an LSP that begins at a router, with this FTN.
func (w *Want) AddRules(at sliver.ID, l *slice.LSP, ftn uint32) {
	for _, m := range l.Match {
		w.Rules[at] = append(w.Rules[at], Rule{l.Name, datapath.LabelRule{FTN: ftn, Match: wire.MatchOut(m)}})
	}
}

// Steer writes the rules, and has the mirror let routers ask them. They are tried by the names of their LSPs.
func (l *Labels) Steer(path machine.DataPath, want Want) {
	bySpace := map[uint32][]datapath.LabelRule{}
	for id, rules := range want.Rules {
		router := want.Routers[id]
		router.Rules = true
		want.Routers[id] = router
		slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(a.LSP, b.LSP) })
		for _, r := range rules {
			bySpace[router.Space] = append(bySpace[router.Space], r.LabelRule)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.openLocked(path) {
		return
	}
	maps.DeleteFunc(l.unruled, func(space uint32, _ error) bool { return bySpace[space] == nil })
	for space, rules := range bySpace {
		if !reflect.DeepEqual(l.rules[space], rules) {
			l.writeRulesLocked(space, rules)
		}
	}
	for space := range l.rules {
		if bySpace[space] == nil && !want.Unknown[(Key{Space: space}).Slice()] {
			l.writeRulesLocked(space, nil)
		}
	}
}

func (l *Labels) writeRulesLocked(space uint32, rules []datapath.LabelRule) {
	switch err := l.path.SetLabelRules(space, rules); {
	case err != nil:
		if l.unruled[space] == nil {
			l.log.Error("write which packets get labels", "error", err)
		}
		l.unruled[space] = err
		if l.rules[space] == nil {
			return
		}
		// Better by their routes than to where they went before.
		if err := l.path.SetLabelRules(space, nil); err == nil {
			delete(l.rules, space)
		}
	case rules == nil:
		delete(l.rules, space)
		delete(l.unruled, space)
	default:
		l.rules[space] = rules
		delete(l.unruled, space)
	}
}

// Unruled says why packets of an LSP do not get its label by its rules; empty: they do, or it has none.
func (l *Labels) Unruled(id uint16, lsp *slice.LSP, ingress *slice.Node) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	space := SpaceOf(id, ingress)
	switch err := l.unruled[space]; {
	case len(lsp.Match) == 0:
		return ""
	case err != nil:
		return err.Error()
	case l.rules[space] == nil:
		return "its rules are about to be written"
	}
	return ""
}
