package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe/sessions"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// lonely is how long after the start of a node a neighbour is waited for on a link where another node could be one: the
// wait timer of OSPF (RFC 2328, appendix C.3: RouterDeadInterval, by default 40 s). Later there is none to come.
const lonely = 40 * time.Second

// sessionsAtOnce bounds the nodes that are asked at the same time.
const sessionsAtOnce = 8

// judged is what daemons that users configured say of their neighbours.
type judged struct {
	nodes    int // in which a daemon answered
	all      int // sessions
	open     []string
	unjudged []string // nodes whose routing cannot be judged, each with the reason
}

// configuredByUsers reports whether a node may run daemons of which Pergola does not know what they are to do.
func configuredByUsers(n *slice.Node) bool {
	if !n.HasSliver() || n.Program != nil {
		return false
	}
	if n.Routing != nil {
		return len(n.Routing.Config) > 0
	}
	return !n.Rootfs.FromMachine()
}

// judgeSessions asks the daemons that users configured, in the nodes of a slice that run here.
func (s *Server) judgeSessions(ctx context.Context, w *plan.Input, pids map[string]int) judged {
	var (
		mu    sync.Mutex // guards j
		j     judged
		group sync.WaitGroup
	)
	turns := make(chan struct{}, sessionsAtOnce)
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if _, runs := pids[n.Name]; !runs || !configuredByUsers(n) {
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			view, err := s.askDaemons(ctx, sliver.ID{Slice: w.Spec.ID, Node: n.Name})
			view.Sessions = slices.DeleteFunc(view.Sessions, func(s sessions.Session) bool {
				return isCut(w, n, s)
			})
			mu.Lock()
			defer mu.Unlock()
			young := s.isYoung(w, n)
			j.add(n, view, err, young, func(iface string) bool {
				return young && hasRoutingNeighbour(w, n, iface)
			})
		})
	}
	group.Wait()
	return j
}

func (j *judged) add(n *slice.Node, view sessions.View, err error, young bool, expects func(iface string) bool) {
	switch {
	case err != nil && n.Routing == nil: // it has no shell, and most likely no daemons
		return
	case err != nil:
		j.unjudged = append(j.unjudged, fmt.Sprintf("%s: %v", n.Name, err))
		return
	case len(view.Daemons) > 0:
		j.nodes++
	case n.Routing != nil && young: // it is to run a daemon, and may be starting it
		j.all++
		j.open = append(j.open, fmt.Sprintf("%s: %s does not answer yet", n.Name, n.Routing.Daemon))
		return
	case n.Routing != nil:
		j.unjudged = append(j.unjudged, fmt.Sprintf("%s: %s does not answer", n.Name, n.Routing.Daemon))
		return
	}
	all, open := view.Judge(n.Name, expects)
	j.all += all
	j.open = append(j.open, open...)
}

// askTimeout is how long a node's daemons have to say what sessions they have.
const askTimeout = 30 * time.Second

func (s *Server) askDaemons(ctx context.Context, id sliver.ID) (sessions.View, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout) // what the node promises itself is no bound
	defer cancel()
	var out bounded
	status, err := s.machine.Runtime.Exec(ctx, id, sliver.ExecRequest{
		Args: []string{"/bin/sh", "-c", sessions.Script}, Stdout: &out,
	})
	if err == nil && status != 0 {
		err = errors.New("it has no shell that asks its daemons")
	}
	if err != nil {
		return sessions.View{}, err
	}
	return sessions.Parse(out.Bytes())
}

// bounded keeps the beginning of what a node writes, which may be anything.
type bounded struct{ bytes.Buffer }

const mostAnswer = 4 << 20 // bytes: some ten thousand sessions

func (b *bounded) Write(p []byte) (int, error) {
	room := max(0, mostAnswer-b.Len())
	_, _ = b.Buffer.Write(p[:min(room, len(p))]) // never fails
	return len(p), nil
}

// isYoung reports whether a node was started so lately that its daemons may find neighbours yet.
func (s *Server) isYoung(w *plan.Input, n *slice.Node) bool {
	o, err := s.machine.Runtime.Observe(sliver.ID{Slice: w.Spec.ID, Node: n.Name})
	return err == nil && time.Since(o.StartedAt) < lonely
}

// isCut reports whether a session is one over a link that a user has taken down: it cannot come up.
func isCut(w *plan.Input, n *slice.Node, s sessions.Session) bool {
	neighbour, err := netip.ParseAddr(s.Neighbour)
	return s.Protocol == "bgp" && err == nil && slices.ContainsFunc(n.Interfaces, func(i slice.Interface) bool {
		return w.Overrides.Down[i.Link] && slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool {
			return p.Masked().Contains(neighbour)
		})
	})
}

// hasRoutingNeighbour reports whether a link of the node's interface, which is up, leads to a node that may run routing
// daemons; "": of any interface.
func hasRoutingNeighbour(w *plan.Input, n *slice.Node, iface string) bool {
	for i := range w.Spec.Links {
		l := &w.Spec.Links[i]
		own, others := false, false
		for _, e := range l.Ends {
			if e.Node == n.Name {
				own = own || iface == "" || e.Interface == iface
				continue
			}
			m := w.Spec.Node(e.Node)
			others = others || m != nil &&
				(m.Kind == slice.Switch || m.Routing != nil || configuredByUsers(m))
		}
		if own && others && !w.Overrides.Down[l.Name] {
			return true
		}
	}
	return false
}
