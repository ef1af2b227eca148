// Package unwalked answers packets with labels that routers cannot send on, in the place of routers' kernels, most of
// which know nothing of labels: by ICMP, with the labels (package answer). It sees such packets (datapath.Unwalked),
// and no others. What goes wrong with an answer is counted: its packet is lost either way, and its sender may send
// again.
//
//	ring buffer -> router by port -> limit of its slice -> answer.Of -> raw socket of the router, or along the LSP
package unwalked

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/unwalked/answer"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
)

// What becomes of a packet.
const (
	ByIP    = "by ip"        // answered: the router's kernel has a route to the source
	ByLSP   = "by lsp"       // answered: the answer goes on along the LSP
	Silent  = "silent"       // there is no answer to such a packet
	Alert   = "router alert" // for a process of the router's, of which there is none
	Unknown = "unknown"      // the router is gone, or was never known
	Failed  = "failed"       // the answer could not be sent

	Withheld = "withheld" // its slice gets no more answers in this second
)

// What a slice can make the host do: the programs bound what they tell of each router, and a slice has many.
const (
	answersPerSecond = 100
	answersAtOnce    = 200
)

// Unwalked answers. Its methods may be called from many goroutines.
type Unwalked struct {
	log   *slog.Logger
	count func(outcome string)
	warns rate.Sometimes // a node decides how often something fails

	mu     sync.Mutex // guards what follows
	path   machine.DataPath
	reader machine.UnwalkedReader   // nil: nothing is read
	done   chan struct{}            // closed when the reader's goroutine has ended
	places map[int]place            // by the substrate's port
	limits map[uint16]*rate.Limiter // by slice
}

// place is a router's end of a link.
type place struct {
	router fastpath.Router
	inside int // the interface's ifindex in the router
}

// New gives one that reads nothing yet. count is called with what became of each packet.
func New(log *slog.Logger, count func(outcome string)) *Unwalked {
	return &Unwalked{log: log, count: count, warns: rate.Sometimes{First: 1, Interval: time.Minute}}
}

// Sync makes it answer for these routers, of which those that have no labels are left out. path is nil where there is
// no data path.
func (u *Unwalked) Sync(path machine.DataPath, routers map[sliver.ID]fastpath.Router) {
	if !u.setRouters(path, routers) {
		return
	}
	u.Close()
	if path == nil {
		return
	}
	reader, err := path.ReadUnwalked()
	if err != nil {
		u.log.Error("packets with labels that cannot be sent on get no answer", "error", err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.path, u.reader, u.done = path, reader, make(chan struct{})
	go u.run(path, reader, u.done)
}

// setRouters reports whether the data path is another one than before.
func (u *Unwalked) setRouters(path machine.DataPath, routers map[sliver.ID]fastpath.Router) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.limits
	u.places, u.limits = make(map[int]place), make(map[uint16]*rate.Limiter)
	for _, r := range routers {
		if r.Labels.Space == 0 {
			continue
		}
		for inside, port := range r.Legs {
			u.places[port] = place{router: r, inside: inside}
		}
		if limit := was[r.Slice]; limit != nil {
			u.limits[r.Slice] = limit
		} else if u.limits[r.Slice] == nil {
			u.limits[r.Slice] = rate.NewLimiter(answersPerSecond, answersAtOnce)
		}
	}
	return u.path != path
}

// Close ends it, but for Sync.
func (u *Unwalked) Close() {
	u.mu.Lock()
	reader, done := u.reader, u.done
	u.path, u.reader, u.done = nil, nil, nil
	u.mu.Unlock()
	if reader == nil {
		return
	}
	if err := reader.Close(); err != nil {
		u.log.Warn("end reading packets with labels", "error", err)
	}
	<-done
}

func (u *Unwalked) run(path machine.DataPath, reader machine.UnwalkedReader, done chan struct{}) {
	defer close(done)
	for {
		p, err := reader.Read()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			u.log.Error("packets with labels that cannot be sent on get no answer any more", "error", err)
			return
		}
		u.count(u.answer(path, &p))
	}
}

// answer answers a packet, and says what became of it.
func (u *Unwalked) answer(path machine.DataPath, p *datapath.Unwalked) string {
	u.mu.Lock()
	at, known := u.places[p.Port]
	limit := u.limits[at.router.Slice]
	u.mu.Unlock()
	if !known || at.router.Labels.Space != p.Space {
		return Unknown
	}
	if p.Why == datapath.RouterAlert {
		return Alert
	}
	if !limit.Allow() {
		return Withheld
	}
	a, ok := answer.Of(refused(p))
	if !ok {
		return Silent
	}
	outcome, err := u.send(path, p, at, a)
	if err != nil {
		u.warns.Do(func() { u.log.Warn("answer a packet with labels", "space", p.Space, "error", err) })
		return Failed
	}
	return outcome
}

func refused(p *datapath.Unwalked) answer.Refused {
	const entryBytes = 4
	r := answer.Refused{Packet: p.Packet, TooBig: p.Why == datapath.TooBig, MTU: p.Room - entryBytes*len(p.Labels)}
	for _, l := range p.Labels {
		r.Labels = append(r.Labels, answer.Label(l))
	}
	return r
}

// send sends an answer by the router's kernel, if that has a route to the source; else along the LSP, whose end has one
// (RFC 3032, 2.3.2).
func (u *Unwalked) send(path machine.DataPath, p *datapath.Unwalked, at place, a *answer.Answer) (string, error) {
	ns, err := netns.OpenSame(at.router.PID, at.router.NetNS)
	if err != nil {
		return "", err
	}
	defer func() { _ = ns.Close() }()
	from, err := sendByIP(ns, at.inside, a)
	if err == nil || !isUnreachable(err) {
		return ByIP, err
	}
	packet, err := a.Packet(from)
	if err != nil {
		return "", err
	}
	return ByLSP, path.SendOn(p, packet)
}
