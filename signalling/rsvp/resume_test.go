package rsvp

import (
	"slices"
	"time"
)

// last has all routers keep their state over restarts, and help others.
func (w *world) last(restart, recovery time.Duration) {
	for i, n := range w.routers {
		n.config.Restart, n.config.Recovery = restart, recovery
		w.start(i)
	}
}

// crash has a router take no input until it is started or resumed. Packets still meet its entries.
func (w *world) crash(i int) { w.routers[i].dead = true }

// resume makes a router that takes over the entries which are installed, some of them without their LSP if it is to
// find that by the label; its owner asks it again for what was wanted.
func (w *world) resume(i int, unnamed bool) {
	n := w.routers[i]
	var entries []Entry
	for _, k := range sortedKeys(n.installed) {
		e := n.installed[k]
		if unnamed && e.HasIn && e.In >= firstLabel {
			delete(n.installed, k)
			e.Key = Key{}
			n.nameless[e.In] = e
		}
		entries = append(entries, e)
	}
	for _, e := range n.nameless {
		if !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
	}
	w.renew(n)
	if err := n.Adopt(w.at(n), entries); err != nil {
		w.t.Fatal(err)
	}
	w.ask(i)
}

// change carries out a change of labels; false: what is to be removed is not there.
func (n *node) change(c LabelChange) bool {
	_, had := n.installed[c.Entry.Key]
	unnamed, alone := n.nameless[c.Entry.In]
	switch {
	case !c.Remove:
		if alone && c.Entry.HasIn { // its LSP is known now
			delete(n.nameless, c.Entry.In)
		}
		n.installed[c.Entry.Key] = c.Entry
	case c.Entry.named():
		delete(n.installed, c.Entry.Key)
		return had
	default:
		delete(n.nameless, c.Entry.In)
		return alone && unnamed == c.Entry
	}
	return true
}
