package te

import (
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// reason is why a path may not go by a link.
type reason uint8

const (
	usable reason = iota
	tooLittle
	wrongGroups
	excludedLink
	excludedNode
	sharedRisk
	visited
	oneWay
	unnumbered
	reasons
)

// text says it of one link and of several.
var text = [reasons][2]string{
	tooLittle: {"has less than %s unreserved at priority %d: %s",
		"have less than %s unreserved at priority %d, at most %s"},
	wrongGroups:  {"does not have the administrative groups", "do not have the administrative groups"},
	excludedLink: {"is to be avoided", "are to be avoided"},
	excludedNode: {"leads to a router that is to be avoided", "lead to routers that are to be avoided"},
	sharedRisk:   {"has a shared risk (SRLG) to be avoided", "have a shared risk (SRLG) to be avoided"},
	visited:      {"leads back to a router of the path", "lead back to routers of the path"},
	oneWay:       {"is advertised by one end only", "are advertised by one end only"},
	unnumbered:   {"has no address at the far end", "have no address at the far end"},
}

// NoPath is the error of a request that no path meets.
type NoPath struct {
	// From and To are the routers, or what was asked for. With steps to go through: the part that is missing.
	From, To string
	// Blocked are the links that would bring the path nearer if they met the constraints, by constraint.
	Blocked []Blocked
	Reason  string // if no link is to blame
}

// Blocked are links that a constraint removes.
type Blocked struct {
	Constraint string
	Links      []LinkID
}

func (e *NoPath) Error() string {
	s := fmt.Sprintf("no path from %s to %s: ", e.From, e.To)
	if len(e.Blocked) == 0 {
		return s + e.Reason
	}
	var parts []string
	for _, b := range e.Blocked {
		parts = append(parts, b.String())
	}
	return s + strings.Join(parts, "; ")
}

// shown is how many links the text of an error names.
const shown = 3

func (b Blocked) String() string {
	word, names := "links", make([]string, 0, shown+1)
	if len(b.Links) == 1 {
		word = "link"
	}
	for i, l := range b.Links {
		if i == shown {
			names = append(names, "…")
			break
		}
		names = append(names, l.String())
	}
	return fmt.Sprintf("%d %s %s (%s)", len(b.Links), word, b.Constraint, strings.Join(names, ", "))
}

func (s *search) noPath(at int32, step message.Step, why string) *NoPath {
	return &NoPath{From: s.nodes[at].ID, To: step.Prefix.Addr().String(), Reason: why}
}

// explain finds why there is no way from one router to another: the links from routers that are reached to those from
// which the end could be reached if there were no constraints.
func (s *search) explain(at, to int32, hops int, step message.Step) error {
	e := s.noPath(at, step, "")
	if s.q.Hops > 0 {
		unlimited := *s
		unlimited.q.Hops = 0
		if ways, last := unlimited.shortest(at, to, hops, step); last != none {
			e.Reason = fmt.Sprintf("the path that meets the other constraints has %d hops, of at most %d",
				ways[last].hops, s.q.Hops)
			return e
		}
		s = &unlimited
	}
	reached := make([]bool, len(s.nodes))
	ways, _ := s.shortest(at, to, hops, step)
	for _, l := range ways {
		reached[l.node] = true
	}
	ahead := s.ahead(to, reached)
	if !step.Loose {
		ahead = make([]bool, len(s.nodes))
		ahead[to] = true
		clear(reached)
		reached[at] = true
	}
	var blocked [reasons][]int32
	for node, links := range s.out {
		for _, link := range links {
			if r := s.blocks(link, ahead); reached[node] && r != usable {
				blocked[r] = append(blocked[r], link)
			}
		}
	}
	for r, links := range blocked {
		if len(links) > 0 {
			e.Blocked = append(e.Blocked, s.blocked(reason(r), links))
		}
	}
	if e.Reason = "no link leads there"; !step.Loose {
		e.Reason = "the step " + step.String() + " is no interface next to it"
	}
	return e
}

// blocks tells why a link does not lead to a router ahead; usable: it would not lead to one.
func (s *search) blocks(link int32, ahead []bool) (why reason) {
	for _, to := range s.ends[link] {
		if r := s.refuses(link, to); ahead[to.node] && r != usable {
			why = r
		}
	}
	return why
}

// ahead are the routers from which links lead to a router, whatever they are like, by none that is reached.
func (s *search) ahead(to int32, reached []bool) []bool {
	from := make([][]int32, len(s.nodes))
	for node, links := range s.out {
		for _, link := range links {
			for _, end := range s.ends[link] {
				from[end.node] = append(from[end.node], int32(node))
			}
		}
	}
	ahead := make([]bool, len(s.nodes))
	ahead[to] = true
	for todo := []int32{to}; len(todo) > 0; todo = todo[1:] {
		for _, n := range from[todo[0]] {
			if !ahead[n] && !reached[n] {
				ahead[n] = true
				todo = append(todo, n)
			}
		}
	}
	return ahead
}

// blocked names a constraint and the links that do not meet it.
func (s *search) blocked(r reason, links []int32) Blocked {
	b := Blocked{Constraint: text[r][1]}
	if len(links) == 1 {
		b.Constraint = text[r][0]
	}
	var most uint64
	for _, l := range links {
		b.Links = append(b.Links, s.links[l].LinkID)
		most = max(most, s.unreserved(l))
	}
	if r == tooLittle {
		b.Constraint = fmt.Sprintf(b.Constraint, Rate(s.q.Bandwidth), s.q.Setup, Rate(most))
	}
	return b
}
