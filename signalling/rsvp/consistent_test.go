package rsvp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

func sortedKeys[V any](m map[Key]V) []Key {
	return slices.SortedFunc(maps.Keys(m), Key.compare)
}

// inconsistent says what is wrong with the state of all routers together; "": nothing. An LSP that is not up is right
// if its owner was told that it failed since the events were cleared.
func (w *world) inconsistent() string {
	owners := map[Key]int{}
	for i, n := range w.routers {
		for k := range n.wanted {
			owners[k] = i
		}
	}
	for i, n := range w.routers {
		if what := n.wrong(owners); what != "" {
			return fmt.Sprintf("router %d: %s", i, what)
		}
	}
	for _, k := range sortedKeys(owners) {
		i := owners[k]
		if what := w.walk(k, i); what != "" {
			return fmt.Sprintf("%s from router %d: %s", k, i, what)
		}
	}
	return ""
}

// wrong compares a router's tables with each other, and with which LSPs are wanted; nil: any.
func (n *node) wrong(owners map[Key]int) string {
	labels, entries := 0, n.Entries()
	held := map[int]map[Key]hold{}
	for k := range n.lsps {
		if _, ok := owners[k]; owners != nil && !ok {
			return fmt.Sprintf("state of %s, which nobody wants", k)
		}
	}
	for _, e := range entries {
		if e.HasIn && e.From != 0 && n.interfaces[e.From].Down || e.HasOut && n.interfaces[e.Interface].Down {
			return fmt.Sprintf("%+v is by a link that is down", e)
		}
		if s := n.lsps[e.Key]; s != nil && s.out != nil && s.repair == nil && !s.path.allowed(s.out) {
			return fmt.Sprintf("%+v is by a link that the affinities do not allow", e)
		}
		if have := n.has(e); have != e {
			return fmt.Sprintf("%+v is to be installed, %+v is", e, have)
		}
		if e.HasIn {
			if _, ok := n.labels.used[e.In]; ok != (e.In >= 16) {
				return fmt.Sprintf("label %d is used; taken: %t", e.In, ok)
			}
			if e.In >= 16 {
				labels++
			}
		}
		if s := n.lsps[e.Key]; e.HasOut && (s == nil || s.repair == nil) { // else it holds what the bypass has
			if held[e.Interface] == nil {
				held[e.Interface] = map[Key]hold{}
			}
			if s := n.lsps[e.Key]; s != nil && s.resv != nil {
				held[e.Interface][e.Key] = s.holdShared(e.Bandwidth, s.resv.style == 0x12)
			} else { // of before a restart
				held[e.Interface][n.keyOf(e)] = *e.hold()
			}
		}
	}
	if !n.recovering() && len(n.adopted)+len(n.nameless) > 0 {
		return fmt.Sprintf("%d entries of before a restart; %d that are installed have no LSP", len(n.adopted),
			len(n.nameless))
	}
	if len(n.installed)+len(n.nameless) != len(entries) || len(n.labels.used) != labels {
		return fmt.Sprintf("%d entries, %d installed; %d labels in use, %d taken", len(entries),
			len(n.installed), labels,
			len(n.labels.used))
	}
	if what := n.mistimed(); what != "" {
		return what
	}
	if what := n.overfilled(); what != "" {
		return what
	}
	for index, l := range n.interfaces {
		if want := (Bandwidth{index, l.Bandwidth, n.Unreserved(index)}); n.left[index] != want {
			return fmt.Sprintf("told %+v, it is %+v", n.left[index], want)
		}
		if what := l.wrong(held[index], n.recovering()); what != "" {
			return fmt.Sprintf("interface %d: %s", index, what)
		}
	}
	return ""
}

// overfilled compares what LSPs store with its sum and its bound.
func (n *node) overfilled() string {
	sum := 0
	for _, s := range n.lsps {
		if have := s.size(s.resv); s.stored != have {
			return fmt.Sprintf("%s stores %d bytes, and counts as %d", s.key, have, s.stored)
		}
		sum += s.stored
	}
	if sum != n.stored || sum > n.Router.config.MaxBytes {
		return fmt.Sprintf("LSPs store %d bytes; counted are %d, allowed %d", sum, n.stored,
			n.Router.config.MaxBytes)
	}
	return ""
}

// mistimed compares the heap of timers with what LSPs and neighbours wait for.
func (n *node) mistimed() string {
	for i, t := range n.timers {
		if t.timer.place != i+1 || t.timer.at != t.at || i > 0 && n.timers.Less(i, (i-1)/2) {
			return fmt.Sprintf("timer %d is at %d, for %s", i, t.timer.place-1, t.at)
		}
	}
	for _, s := range n.lsps {
		if s.timer.place == 0 || n.timers[s.timer.place-1].at != s.due() || !s.known {
			return fmt.Sprintf("%s waits for %s, and its timer %d for something else", s.key, s.due(),
				s.timer.place)
		}
	}
	count := map[place]int{}
	for _, s := range n.lsps {
		if s.in != nil {
			count[place{s.in.Index, s.path.hop.Addr}]++
		}
		if s.out != nil {
			count[place{s.out.Index, s.next}]++
		}
	}
	for p, b := range n.neighbours {
		if b.timer.place == 0 || n.timers[b.timer.place-1].at != b.due() || b.lsps != count[p] {
			return fmt.Sprintf("neighbour %v waits for %s, its timer %d; %d LSPs, %d are there", p, b.due(),
				b.timer.place, b.lsps, count[p])
		}
	}
	others := 0
	if n.recovering() {
		others = 1
	}
	if len(n.timers) != len(n.lsps)+len(n.neighbours)+others {
		return fmt.Sprintf("%d timers of %d LSPs and %d neighbours", len(n.timers), len(n.lsps),
			len(n.neighbours))
	}
	return ""
}

// has is what is installed in the place of an entry.
func (n *node) has(e Entry) Entry {
	if e.named() {
		return n.installed[e.Key]
	}
	return n.nameless[e.In]
}

// keyOf is the LSP by which an entry of before a restart holds bandwidth.
func (n *node) keyOf(e Entry) Key {
	for k, s := range n.lsps {
		if s.kept != nil && *s.kept == e {
			return k
		}
	}
	return e.adoptedKey()
}

// mistaken compares the heap of whom to pre-empt with what is held.
func (l *link) mistaken() string {
	count := 0
	known := map[Key]bool{}
	for _, s := range l.victims {
		known[s.key] = true
	}
	for session, holders := range l.held {
		for _, h := range holders {
			k := Key{session, h.sender, h.lsp}
			if h.bandwidth > 0 && (h.holding > 0 || known[k]) { // else it may be of before a restart
				count++
			}
		}
	}
	for i, s := range l.victims {
		if s.victim != i+1 || s.out != l || s.resv == nil || i > 0 && l.victims.Less(i, (i-1)/2) {
			return fmt.Sprintf("%s is at %d of those to pre-empt", s.key, i)
		}
	}
	if count != len(l.victims) {
		return fmt.Sprintf("%d can be pre-empted, %d hold bandwidth", len(l.victims), count)
	}
	return ""
}

// wrong sums what entries hold in the plain way.
func (l *link) wrong(want map[Key]hold, recovering bool) string {
	if what := l.mistaken(); what != "" {
		return what
	}
	var sums [priorities]uint64
	count := 0
	for session, holders := range l.held {
		count += len(holders)
		for _, h := range holders {
			k := Key{session, h.sender, h.lsp}
			if want[k] != h.hold {
				return fmt.Sprintf("%s holds %+v, its entry has %+v", k, h.hold, want[k])
			}
		}
		for p, s := range sum(holders...) {
			sums[p] += s
		}
	}
	var total uint64
	for _, s := range sums {
		total += s
	}
	// What entries of before a restart hold is counted too high where they share it and their LSPs are not known.
	if count != len(want) || sums != l.sums || total > l.Bandwidth && !recovering {
		return fmt.Sprintf("%d hold, %d entries; sums %v, want %v; %d of %d", count, len(want), l.sums, sums,
			total,
			l.Bandwidth)
	}
	return ""
}

// walk follows a packet from the ingress by labels.
func (w *world) walk(k Key, router int) string {
	if _, ok := w.routers[router].installed[k]; !ok {
		failed := slices.ContainsFunc(w.routers[router].events,
			func(e Event) bool { return e.Kind == Failed && e.Key == k })
		if !failed {
			return "not up, and no failure told"
		}
		return ""
	}
	at, what := w.carry(k, router)
	switch {
	case what != "":
		return what
	case w.routers[at.router].config.ID != k.Session.End:
		return fmt.Sprintf("it ends at router %d", at.router)
	}
	return ""
}

// carry follows a packet of an LSP from a router where it begins, by whatever labels it meets, and gives the interface
// by which it comes to the end; else what happens to it.
func (w *world) carry(k Key, router int) (at end, what string) {
	at.router = router
	e, stack := w.routers[router].installed[k], []message.Label{} // the top is the last
	bare := false                                                 // it has no label of the LSP any more
	for range 3 * len(w.routers) {
		if e.Key == k {
			bare = e.Operation() == Pop || e.Operation() == Plain
		}
		stack = stack[:max(len(stack)-1, 0)]
		switch e.Operation() {
		case Push, Swap:
			stack = append(stack, e.Out)
		case Pop, Plain, Deliver, Nothing:
		}
		if e.Bypass != 0 {
			stack = append(stack, e.Bypass)
		}
		if e.HasOut {
			if w.routers[at.router].config.Interfaces[e.Interface-1].Down {
				return at, fmt.Sprintf("router %d sends it by a link that is down", at.router)
			}
			at = w.routers[at.router].peers[e.Interface]
		}
		n := w.routers[at.router]
		if last := len(stack) - 1; last > 0 && stack[last] < firstLabel { // of a bypass: what is below counts
			stack = stack[:last]
		}
		if len(stack) == 0 {
			e, ok := n.installed[k]
			if !ok || e.HasOut || !e.HasIn || bare != (e.In == message.ImplicitNull) {
				return at, fmt.Sprintf("a packet without a label comes to router %d, which has %+v",
					at.router, e)
			}
			return at, ""
		}
		var ok bool
		e, ok = n.meets(stack[len(stack)-1], at.index, k)
		if !ok || len(stack) == 1 && !bare && e.Key != k {
			return at, fmt.Sprintf("a packet with labels %d comes to router %d by %d, which has %+v", stack,
				at.router, at.index, e)
		}
	}
	return at, "a loop"
}

// meets is the entry for a label: those that say nothing but that they are the last one are of the LSP that is looked
// for.
func (n *node) meets(label message.Label, index int, k Key) (Entry, bool) {
	for _, e := range n.installed {
		if e.comesBy(index) && e.In == label && (label >= firstLabel || e.Key == k) {
			return e, true
		}
	}
	return Entry{}, false
}
