// Package sockets answers slivers: each node with a packet program has a control socket, by which it reads and changes
// what is its slice's, while it runs. docs/slowpath.md describes the protocol, package sdk/message its messages.
//
// Whose socket it is decides whom the agent takes the caller for, and nothing in a message does: a sliver sees its own
// socket and no other. What can be asked about is the nodes of that slice on this host.
package sockets

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/sdk/message"
)

// Limits of what slivers can ask for. All nodes of a slice share the rate: a slice that asks for more waits.
const (
	maxConnections = 8       // of one node at the same time
	bytesPerSecond = 8 << 20 // of requests and answers of a slice
	burst          = 1 << 20 // bytes
	costOfMessage  = 4 << 10 // bytes: so short messages are bounded, too, to 2,000 a second
	costOfChange   = 1 << 20 // bytes: of a change that all hosts hear of, which are so bounded to 8 a second
	writeTimeout   = 10 * time.Second
)

// Nodes is what can be asked about nodes of this host. *serve.Server is one; see there for what each method promises.
type Nodes interface {
	IsSlice(id uint16, name string) bool
	Programs(ctx context.Context, slice string, nodes ...string) ([]api.NodeProgram, error)
	ProgramMemory(ctx context.Context, slice, node string) (*os.File, wire.ProgramMemory, error)
	OpenSlowPath(ctx context.Context, slice, node string) (*os.File, error)
	NodeQueues(ctx context.Context, slice, node string) ([]api.QueueTraffic, error)
	Filters(ctx context.Context, slice, node string) (api.NodeFilters, error)
	ChangeFilters(ctx context.Context, slice, node string, change api.FilterChange) error
	ReplaceFilters(ctx context.Context, slice, node string, filters []string) error
	SetQueues(ctx context.Context, slice, node, iface string, queues []api.QueuePatch) error
	NodeReserved(slice, node string) (ports []slice.HostPort, bandwidth map[string]uint64, err error)
	Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error
}

// Sockets are the control sockets of a host's slivers.
type Sockets struct {
	nodes   Nodes
	listen  func(sliver.ID) (*net.UnixListener, error)
	changes *rate.Limiter // of what is stored
	log     *slog.Logger

	mu     sync.Mutex // guards all below
	open   map[sliver.ID]*socket
	shares map[uint16]share // by slice
}

// share is what all nodes of a slice share.
type share struct {
	rate *rate.Limiter // bytes
	// Each has room for one request: lists for one whose answer may be long, changes for one that changes what
	// is stored.
	lists, changes chan struct{}
}

func newShare() share {
	return share{rate.NewLimiter(bytesPerSecond, burst), make(chan struct{}, 1), make(chan struct{}, 1)}
}

// New gives Sockets that have none yet. All slices together change what is stored as often as changes allows, in turn.
func New(nodes Nodes, listen func(sliver.ID) (*net.UnixListener, error), changes *rate.Limiter,
	log *slog.Logger) *Sockets {
	return &Sockets{
		nodes: nodes, listen: listen, changes: changes, log: log,
		open: make(map[sliver.ID]*socket), shares: make(map[uint16]share),
	}
}

// Owner is a sliver that is to have a socket.
type Owner struct {
	Slice   string    // its name
	Created time.Time // a sliver that was made anew needs a new socket
}

// Owners are the slivers of nodes with a packet program that are there.
func Owners(inputs []plan.Input, seen *observe.Snapshot) map[sliver.ID]Owner {
	all := make(map[sliver.ID]Owner)
	for i := range inputs {
		spec := inputs[i].Spec
		for j := range spec.Nodes {
			n := &spec.Nodes[j]
			id := sliver.ID{Slice: spec.ID, Node: n.Name}
			if is := seen.Slivers[id]; n.Program != nil && is.PID != 0 {
				all[id] = Owner{Slice: spec.Name, Created: is.CreatedAt}
			}
		}
	}
	return all
}

// socket is that of one sliver.
type socket struct {
	Owner
	share
	id       sliver.ID
	sockets  *Sockets
	listener *net.UnixListener // nil: the sliver was made without one
	ctx      context.Context   //nolint:containedctx // of its connections: ends with the socket
	end      context.CancelFunc
	handing  chan struct{} // has room for one request for the slow path

	mu    sync.Mutex // guards conns
	conns map[*net.UnixConn]bool
}

// Sync opens and closes sockets so that these slivers have one, and no other has.
func (s *Sockets) Sync(want map[sliver.ID]Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := make(map[uint16]bool, len(want))
	for id, is := range s.open {
		if o, wanted := want[id]; !wanted || o.Slice != is.Slice || !o.Created.Equal(is.Created) {
			is.close()
			delete(s.open, id)
		}
	}
	for id, o := range want {
		used[id.Slice] = true
		if s.open[id] == nil {
			s.add(id, o)
		}
	}
	for id := range s.shares {
		if !used[id] {
			delete(s.shares, id)
		}
	}
}

// add opens a socket. One that cannot be opened is tried again with the next Sync.
func (s *Sockets) add(id sliver.ID, o Owner) {
	l, err := s.listen(id)
	if err != nil && !errors.Is(err, sliver.ErrNoSocket) {
		s.log.Warn("open the control socket of a node", "slice", o.Slice, "node", id.Node, "error", err)
		return
	}
	if _, known := s.shares[id.Slice]; !known {
		s.shares[id.Slice] = newShare()
	}
	is := &socket{
		Owner: o, share: s.shares[id.Slice], id: id, sockets: s, listener: l,
		handing: make(chan struct{}, 1), conns: make(map[*net.UnixConn]bool),
	}
	is.ctx, is.end = context.WithCancel(context.Background())
	s.open[id] = is
	if l != nil {
		go is.accept()
	}
}

// Close closes all sockets. The next process makes new ones in their place.
func (s *Sockets) Close() { s.Sync(nil) }

func (k *socket) close() {
	k.end()
	if k.listener != nil {
		_ = k.listener.Close()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}

func (k *socket) accept() {
	for {
		c, err := k.listener.AcceptUnix()
		if k.ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err != nil { // no file descriptors left, or the connection has gone
			k.sockets.log.Warn("accept at the control socket of a node", "slice", k.Slice,
				"node", k.id.Node, "error", err)
			select {
			case <-k.ctx.Done():
				return
			case <-time.After(time.Second):
			}
			continue
		}
		if !k.hold(c) {
			k.refuse(c)
		} else {
			go k.converse(c)
		}
		if k.rate.WaitN(k.ctx, costOfMessage) != nil {
			return
		}
	}
}

// hold counts a connection; false: there are enough.
func (k *socket) hold(c *net.UnixConn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.conns) >= maxConnections || k.ctx.Err() != nil {
		return false
	}
	k.conns[c] = true
	return true
}

// refuse answers the first request: a connection that is closed before it was read is reset, and its answer is lost.
// Until then it holds up the node's other connections that are new, and nobody else's.
func (k *socket) refuse(c *net.UnixConn) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = receive(c)
	_ = send(c, message.Answer{
		Code: message.Busy, Error: "the node has too many connections",
		Advice: "close some: a connection can be used for any number of requests",
	}, nil)
	_ = c.Close()
}

// converse answers the requests of a connection until one of its ends closes it.
func (k *socket) converse(c *net.UnixConn) {
	defer func() {
		k.mu.Lock()
		delete(k.conns, c)
		k.mu.Unlock()
		_ = c.Close()
	}()
	for {
		data, err := receive(c)
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
		if k.rate.WaitN(k.ctx, costOfMessage+len(data)) != nil {
			return
		}
		var r message.Request
		var answers []answer
		spent := processorTime(func() { r, err = parse(data, err) })
		done, ended := k.admit(r)
		if ended != nil {
			return
		}
		spent += processorTime(func() { answers = k.answer(r, err) })
		sent := k.sendAll(c, answers)
		done()
		// It does not get work for nothing by closing early.
		if k.charge(spent) != nil || sent != nil {
			return
		}
	}
}

// admit waits until a request may be carried out: one that changes what is stored, until the slice's rate has paid for
// that, and it is the slice's turn among those of the host, in which it has one request at a time; one whose answer
// may be long, until no other such answer of the slice takes memory; one for a file that is one process's, until this
// process has closed its own copy of the last one. done is called when the answer has been sent. What waits here has
// no thread of its own, unlike a request that is carried out (processorTime): thousands may wait.
func (k *socket) admit(r message.Request) (done func(), err error) {
	switch r.Do {
	case message.DoSetQueues, message.DoReserve, message.DoRelease:
		if err := k.rate.WaitN(k.ctx, costOfChange); err != nil {
			return nil, err
		}
		if done, err = k.enter(k.changes); err != nil {
			return nil, err
		}
		if err := k.sockets.changes.Wait(k.ctx); err != nil {
			done()
			return nil, err
		}
		return done, nil
	case message.DoFilters:
		return k.enter(k.lists)
	case message.DoSlowPath:
		return k.enter(k.handing)
	}
	return func() {}, nil
}

// enter waits until there is room, and takes it until leave is called.
func (k *socket) enter(room chan struct{}) (leave func(), err error) {
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	case <-k.ctx.Done():
		return nil, k.ctx.Err()
	}
}

// sendAll sends the messages of an answer.
func (k *socket) sendAll(c *net.UnixConn, answers []answer) error {
	for i := range answers {
		if err := k.send(c, answers[i]); err != nil {
			closeFiles(answers[i:])
			return err
		}
	}
	return nil
}

// send sends one message of an answer, and waits as its length asks for.
func (k *socket) send(c *net.UnixConn, a answer) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	err := send(c, a.Answer, a.file)
	if a.file != nil {
		_ = a.file.Close() // the sliver has its own by now
	}
	if err != nil {
		return err
	}
	return k.rate.WaitN(k.ctx, min(len(a.OK), burst))
}
