package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Hosts do not tell each other what their nodes do, so that nobody could wait for a node of another one.
func TestNodesThatWaitForEachOtherAreOnOneHost(t *testing.T) {
	const file = `name: lab
nodes: {a: {}, b: {wait_for: d}, c: {}, d: {}, e: {wait_for: [b, "d:ready"]}, f: {}}
`
	at := hostsOf(mustPlace(t, &placing{next: resolved(t, file, nil), hosts: machines(2), generation: 1}))
	if at["b"] != at["d"] || at["e"] != at["d"] {
		t.Errorf("parted: %v", at)
	}
	if at["a"] == at["d"] || at["c"] == at["d"] || at["f"] == at["d"] {
		t.Errorf("not spread: %v", at)
	}

	// A pin of one of them is one of all.
	pinned := strings.ReplaceAll(file, "d: {}", "d: {host: h2}")
	at = hostsOf(mustPlace(t, &placing{next: resolved(t, pinned, nil), hosts: machines(2), generation: 1}))
	if at["b"] != "h2" || at["d"] != "h2" || at["e"] != "h2" {
		t.Errorf("d is pinned to h2: %v", at)
	}
}

func TestPinsThatPartNodesThatWaitAreRefused(t *testing.T) {
	const file = "name: lab\nnodes:\n  a: {host: h1}\n  b: {host: h2, wait_for: a}\n"
	p := &placing{next: resolved(t, file, nil), hosts: machines(2), generation: 1}
	err := p.place()
	var r *Refusal
	const why = "node b waits for a, and they are on two hosts, h2 and h1: give both the same host:"
	if !errors.As(err, &r) || !strings.Contains(r.Message, why) || r.Faults[0].Location != "nodes.b.wait_for" {
		t.Errorf("placed: %v", err)
	}
}

func TestWhereNoHostTakesAllThatWaitTheyAreNamed(t *testing.T) {
	const file = "name: lab\nnodes:\n  a: {host: h1, cpu: 5}\n  b: {cpu: 4, wait_for: a}\n"
	p := &placing{next: resolved(t, file, nil), hosts: machines(2), generation: 1}
	err := p.place()
	const why = "no host can take node a and those that wait for it, or it for them (b): " +
		"h1: 9 cores wanted, 8 of 8 free; h2: node a is pinned to h1"
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("placed: %v", err)
	}
}

// parting is a network of which all nodes run on h1, which is drained.
func parting(t *testing.T, file string) *placing {
	t.Helper()
	p := &placing{background: true, hosts: machines(2), generation: 2, prev: resolved(t, file, nil)}
	for i := range p.prev.Nodes {
		p.prev.Nodes[i].Host = "h1"
	}
	p.next, p.hosts[0].Policy.Draining = copyForPlacing(p.prev), true
	return p
}

func TestADrainMovesNodesThatWaitTogetherOrNot(t *testing.T) {
	p := parting(t, "name: lab\nnodes: {a: {}, b: {wait_for: a}}\n")
	if at := hostsOf(mustPlace(t, p)); at["a"] != "h2" || at["b"] != "h2" || len(p.notes) > 0 {
		t.Errorf("both can move: %v: it says %q", at, p.notes)
	}

	p = parting(t, "name: lab\nnodes: {a: {host: h1}, b: {wait_for: a}}\n")
	at := hostsOf(mustPlace(t, p))
	want := []string{"b stays on h1: it waits for nodes that stay there, or they wait for it"}
	if at["b"] != "h1" || !slices.Equal(p.notes, want) {
		t.Errorf("a is pinned: %v: it says %q", at, p.notes)
	}

	p = parting(t, "name: lab\nnodes: {a: {cpu: 5}, b: {cpu: 3, wait_for: a}, c: {cpu: 2}}\n")
	p.hosts[1].Cores = 7
	at = hostsOf(mustPlace(t, p))
	want = []string{"a stays on h1: no other host can take it: h2: 8 cores wanted, 7 of 7 free",
		"b stays on h1: no other host can take it: h2: 8 cores wanted, 7 of 7 free"}
	if at["a"] != "h1" || at["b"] != "h1" || at["c"] != "h2" || !slices.Equal(p.notes, want) {
		t.Errorf("h2 takes only one of them: %v: it says %q", at, p.notes)
	}
}

// Nobody is asked, so it has to be said, and the others of the network are placed.
func TestNodesThatRunOnTwoHostsAreLeftThere(t *testing.T) {
	p := &placing{background: true, hosts: machines(2), generation: 2,
		prev: resolved(t, "name: lab\nnodes: {a: {}, b: {wait_for: a}, c: {}}\n", nil)}
	p.prev.Node("a").Host, p.prev.Node("b").Host, p.prev.Node("c").Host = "h1", "h2", "h1"
	p.next = copyForPlacing(p.prev)
	at := hostsOf(mustPlace(t, p))
	said := func(n string) bool { return strings.Contains(n, "they are on two hosts, h2 and h1") }
	if at["a"] != "h1" || at["b"] != "h2" || at["c"] != "h1" || !slices.ContainsFunc(p.notes, said) {
		t.Errorf("%v: it says %q", at, p.notes)
	}

	// A node that has to stay on a host that was removed keeps no other one from being placed.
	p = parting(t, "name: lab\nnodes: {a: {host: h1, binds: [/srv:/srv]}, b: {wait_for: a}}\n")
	p.hosts, p.prev.Node("b").Host = p.hosts[1:], ""
	p.next.Node("b").Host = ""
	at = hostsOf(mustPlace(t, p))
	if at["a"] != "h1" || at["b"] != "h2" {
		t.Errorf("h1 was removed: %v: it says %q", at, p.notes)
	}
}
