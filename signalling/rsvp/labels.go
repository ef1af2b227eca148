package rsvp

import "github.com/pergola-net/pergola/signalling/rsvp/message"

// labels are given in turn, so that one that was returned is not soon given again: a neighbour may still use it.
type labels struct {
	first, last, next message.Label
	used              map[message.Label]struct{}
}

func newLabels(first, last message.Label) *labels {
	return &labels{first: first, last: last, next: first, used: make(map[message.Label]struct{})}
}

func (l *labels) take() (message.Label, bool) {
	if len(l.used) > int(l.last-l.first) {
		return 0, false
	}
	for {
		label := l.next
		if l.next++; l.next > l.last {
			l.next = l.first
		}
		if _, taken := l.used[label]; !taken {
			l.used[label] = struct{}{}
			return label, true
		}
	}
}

// keep takes a label that was given before a restart. The next ones are others than those of before.
func (l *labels) keep(label message.Label) {
	if label < firstLabel {
		return
	}
	l.used[label] = struct{}{}
	if label >= l.next && label < l.last {
		l.next = label + 1
	}
}

// giveBack takes any label; reserved ones were not taken.
func (l *labels) giveBack(label message.Label) { delete(l.used, label) }
