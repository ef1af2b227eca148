// Package node is for programs in the sliver of a node with a packet program: the node's slow path. They read counters
// and memory of the packet program, and write its filters, by the sliver's control socket, while the node runs.
//
//	n, err := node.Open(ctx)
//	err = n.ChangeFilters(ctx, nil, []string{"destination=192.0.2.0/24 -> send 2"})
//
// It needs nothing but the standard library. docs/slowpath.md describes the socket for other languages.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/sdk/message"
)

// Hello says whom the agent takes this process for.
type Hello = message.Hello

// Counters count frames since the packet program was first set.
type Counters = message.Counters

// Filters are those of the packet program.
type Filters = message.Filters

// Error is what the agent has against a request.
type Error struct {
	Request string // such as change_filters
	Code    message.Code
	Text    string
	Advice  string // "" where there is none
}

func (e *Error) Error() string {
	if e.Advice == "" {
		return fmt.Sprintf("%s: %s", e.Request, e.Text)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Request, e.Text, e.Advice)
}

// Node is a connection to the control socket. Its methods may be called from many goroutines: there is one request at a
// time, and the others wait for their turn as long as their contexts say. A connection that broke, because the agent
// was restarted, is made anew by the next request; that one may have been carried out though it failed.
type Node struct {
	path string
	turn chan struct{} // taken by the request that runs, and by Close

	// Of whoever has the turn.
	conn *net.UnixConn
	last uint64 // id of the last request
}

// Open connects to the node's control socket (message.Path). It waits until the agent listens, or ctx ends: a process
// that starts with its node may be earlier than the socket.
func Open(ctx context.Context) (*Node, error) { return OpenAt(ctx, message.Path) }

// OpenAt is Open for a socket at another place.
func OpenAt(ctx context.Context, path string) (*Node, error) {
	n := &Node{path: path, turn: make(chan struct{}, 1)}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// Close ends the connection, after the request that runs.
func (n *Node) Close() error {
	n.turn <- struct{}{}
	defer n.pass()
	return n.disconnect()
}

// await waits for the turn to make a request.
func (n *Node) await(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another request to end: %w", context.Cause(ctx))
	}
}

func (n *Node) pass() { <-n.turn }

func (n *Node) disconnect() error {
	if n.conn == nil {
		return nil
	}
	err := n.conn.Close()
	n.conn = nil
	return err
}

func (n *Node) connect(ctx context.Context) error {
	const pause = 50 * time.Millisecond
	for n.conn == nil {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unixpacket", n.path)
		if err == nil {
			n.conn = c.(*net.UnixConn)
			return nil
		}
		absent := errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
		if !absent {
			return fmt.Errorf("connect to the node's control socket: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connect to the node's control socket: %w: no agent listens (%w)",
				context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
	return nil
}

// Hello says whom the agent takes this process for.
func (n *Node) Hello(ctx context.Context) (h Hello, err error) {
	return h, n.ask(ctx, message.Request{Do: message.DoHello}, &h)
}

// Counters reads what the packet program counted, and what the platform counted of its frames.
func (n *Node) Counters(ctx context.Context) (c Counters, err error) {
	return c, n.ask(ctx, message.Request{Do: message.DoCounters}, &c)
}

// Queues reads what went through the queues by which the node sends.
func (n *Node) Queues(ctx context.Context) (all []message.Queue, err error) {
	err = n.request(ctx, message.Request{Do: message.DoQueues}, func(ok json.RawMessage, _ int) error {
		var part message.Queues
		if err := json.Unmarshal(ok, &part); err != nil {
			return err
		}
		all = append(all, part.Queues...)
		return nil
	})
	return all, err
}

// QueueChange changes one queue, adds the next one, or removes the last one.
type QueueChange = message.QueueChange

// SetQueues changes queues of an interface: shares, lengths, rates, and how many there are. All of that, or nothing. It
// is as a change by `pergola link set`: it survives the agent's and the server's end.
func (n *Node) SetQueues(ctx context.Context, iface string, queues ...QueueChange) error {
	return n.ask(ctx, message.Request{Do: message.DoSetQueues, Interface: iface, Queues: queues}, nil)
}

// Reservations is what the node has reserved.
type Reservations = message.Reservations

// Reservations lists what the node has reserved of its machine: ports and bandwidth.
func (n *Node) Reservations(ctx context.Context) (r Reservations, err error) {
	return r, n.ask(ctx, message.Request{Do: message.DoReservations}, &r)
}

// Reserve reserves ports of the machine's addresses (tcp/8080), which then lead to the sliver, and bandwidth of the
// machine's card, in bit/s by interface: all of that, or nothing. What the node has already is no error.
func (n *Node) Reserve(ctx context.Context, ports []string, bandwidth map[string]uint64) error {
	return n.ask(ctx, message.Request{Do: message.DoReserve, Ports: ports, Bandwidth: bandwidth}, nil)
}

// Release gives back ports, and the bandwidth of interfaces, that Reserve reserved: all of that, or nothing.
func (n *Node) Release(ctx context.Context, ports, interfaces []string) error {
	return n.ask(ctx, message.Request{Do: message.DoRelease, Ports: ports, Interfaces: interfaces}, nil)
}

// ChangeFilters deletes filters, and then inserts others: all of that, or nothing; a frame meets the filters before or
// those after. Each is written as in a topology: [table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT; of those that
// are deleted, the verdict is left out. All of them have to fit into a message (message.MaxSize).
func (n *Node) ChangeFilters(ctx context.Context, remove, insert []string) error {
	return n.ask(ctx, message.Request{Do: message.DoChangeFilters, Delete: remove, Insert: insert}, nil)
}

// ReplaceFilters makes these filters all that the packet program has, or changes nothing. They have to fit into a
// message.
func (n *Node) ReplaceFilters(ctx context.Context, filters []string) error {
	return n.ask(ctx, message.Request{Do: message.DoReplaceFilters, Insert: filters}, nil)
}

// Filters lists all filters, with their hits.
func (n *Node) Filters(ctx context.Context) (all Filters, err error) {
	err = n.request(ctx, message.Request{Do: message.DoFilters}, func(ok json.RawMessage, _ int) error {
		var part Filters
		if err := json.Unmarshal(ok, &part); err != nil {
			return err
		}
		all.Key = append(all.Key, part.Key...)
		all.Filters = append(all.Filters, part.Filters...)
		return nil
	})
	return all, err
}

// ask makes a request whose answer is one message.
func (n *Node) ask(ctx context.Context, r message.Request, answer any) error {
	return n.request(ctx, r, func(ok json.RawMessage, _ int) error {
		if answer == nil {
			return nil
		}
		return json.Unmarshal(ok, answer)
	})
}

// request makes a request, and calls take with each message of its answer. fd is what came with it, which take has to
// close; -1: nothing.
func (n *Node) request(ctx context.Context, r message.Request, take func(ok json.RawMessage, fd int) error) error {
	if err := n.await(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.Do, err)
	}
	defer n.pass()
	n.last++
	r.ID = n.last
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Do, err)
	}
	if len(data) > message.MaxSize {
		return &Error{r.Do, message.Invalid, fmt.Sprintf("the request has %d bytes, and may have %d", len(data),
			message.MaxSize), "send filters in several requests"}
	}
	err = n.exchange(ctx, r, data, take)
	if errors.Is(err, syscall.EPIPE) { // the agent went before: it has not read the request
		err = n.exchange(ctx, r, data, take)
	}
	return err
}

func (n *Node) exchange(ctx context.Context, r message.Request, data []byte,
	take func(json.RawMessage, int) error) error {
	if err := n.connect(ctx); err != nil {
		return err
	}
	conn := n.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := n.converse(r, data, take)
	ended := !stop()
	var refused *Error
	if err != nil && !errors.As(err, &refused) || ended {
		_ = n.disconnect() // what comes next might be the rest of this answer
	}
	if err != nil && ended {
		return fmt.Errorf("%s: %w", r.Do, context.Cause(ctx))
	}
	return err
}

func (n *Node) converse(r message.Request, data []byte, take func(json.RawMessage, int) error) error {
	if _, err := n.conn.Write(data); err != nil {
		return fmt.Errorf("%s: send the request: %w", r.Do, err)
	}
	for {
		a, fd, err := receive(n.conn)
		if err != nil {
			return fmt.Errorf("%s: receive the answer: %w", r.Do, err)
		}
		switch {
		case a.Error != "":
			closeFD(fd)
			if a.ID != r.ID {
				_ = n.disconnect() // it is the connection that is refused
			}
			return &Error{r.Do, a.Code, a.Error, a.Advice}
		case a.ID != r.ID:
			closeFD(fd)
			return fmt.Errorf("%s: the answer is one to request %d", r.Do, a.ID)
		}
		if err := take(a.OK, fd); err != nil {
			return fmt.Errorf("%s: %w", r.Do, err)
		}
		if !a.More {
			return nil
		}
	}
}

// receive reads one message, and the file descriptor that came with it.
func receive(c *net.UnixConn) (a message.Answer, fd int, err error) {
	fd = -1
	const oneFD = 4
	data, rights := make([]byte, message.MaxSize+1), make([]byte, syscall.CmsgSpace(oneFD))
	n, nr, _, _, err := c.ReadMsgUnix(data, rights)
	if err != nil {
		return a, fd, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:nr])
	if err != nil {
		return a, fd, err
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	if n == 0 {
		return a, fd, errors.New("the agent has closed the connection")
	}
	if err := json.Unmarshal(data[:n], &a); err != nil {
		closeFD(fd)
		return a, -1, fmt.Errorf("read the message: %w", err)
	}
	return a, fd, nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = syscall.Close(fd)
	}
}
