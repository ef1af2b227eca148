// Package client is for programs that send and receive by I3: they insert triggers, which the package keeps alive, send
// packets to identifiers, and receive packets.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// Options is what a client needs.
type Options struct {
	// Gateways are servers of the ring by which packets go into it; at least one. If one does not answer, the next
	// one is used.
	Gateways []netip.AddrPort
	// Local is where packets are received. If its address is not given, it is the one from which this machine
	// sends to a gateway, and the client moves when that changes. Port 0: any.
	Local netip.AddrPort
	// Lifetime is how long triggers live without a refresh; 0: DefaultLifetime. Servers may grant less.
	Lifetime time.Duration
	// OnEvent is told what becomes of triggers; nil: nobody is. It must not call the client.
	OnEvent func(e Event)
}

// Client sends and receives. Its methods may be called from several goroutines.
type Client struct {
	options  Options
	received chan Packet
	closed   chan struct{}
	loops    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	keeper  *Keeper
	conn    *net.UDPConn
	waiters []*waiter
	calls   map[uint64]chan<- answer
	lost    uint64
}

// Packet is what arrives.
type Packet struct {
	ID      ident.ID   // by which it came
	Rest    []ident.ID // identifiers that its sender wants it to go on to
	Payload []byte
	Server  netip.AddrPort // that sent it here
}

// ErrClosed says that the client was closed.
var ErrClosed = errors.New("the client is closed")

// backlog is how many packets wait for Receive; more are lost, as in a socket.
const backlog = 1024

// New makes a client. It sends nothing yet.
func New(o Options) (*Client, error) {
	if len(o.Gateways) == 0 {
		return nil, errors.New("make a client: no gateway is given")
	}
	c := &Client{options: o, received: make(chan Packet, backlog), closed: make(chan struct{}),
		calls: make(map[uint64]chan<- answer)}
	c.keeper = NewKeeper(netip.AddrPort{}, o.Gateways, o.Lifetime, c.write, c.event)
	conn, err := c.listen(o.Local)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	c.keeper.Move(time.Now(), localOf(conn))
	c.loops.Add(1)
	go c.read(conn)
	if !o.Local.Addr().IsValid() {
		c.loops.Add(1)
		go c.follow()
	}
	return c, nil
}

// listen opens a socket at an address, or at the one from which packets to a gateway come; c.mu is held.
func (c *Client) listen(local netip.AddrPort) (*net.UDPConn, error) {
	if !local.Addr().IsValid() {
		a, err := c.way()
		if err != nil {
			return nil, err
		}
		local = netip.AddrPortFrom(a, local.Port())
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, fmt.Errorf("receive at %s: %w", local, err)
	}
	return conn, nil
}

func localOf(conn *net.UDPConn) netip.AddrPort {
	a := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Local gives the address at which the client receives now.
func (c *Client) Local() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return localOf(c.conn)
}

// Lost gives how many packets were lost because Receive was not called often enough.
func (c *Client) Lost() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// NewHandle gives a handle that nobody guesses.
func NewHandle() (h wire.Handle) {
	_, _ = rand.Read(h[:]) // does not fail (crypto/rand)
	return h
}

// HandleFrom gives the handle of a secret that its owner remembers: so that a receiver that starts anew, or somewhere
// else, replaces its old trigger.
func HandleFrom(secret string) wire.Handle {
	id := ident.FromName("i3 handle " + secret)
	return wire.Handle(id[:16])
}

// Trigger is what a client wants of servers.
type Trigger struct {
	ID     ident.ID
	Handle wire.Handle // NewHandle or HandleFrom
	Stack  []ident.ID  // where packets go on to; empty: to this client
	Secret ident.Key   // of a constrained identifier that leads to this client; else zero
}

// Insert inserts a trigger, waits until a server has stored it, and keeps it alive until Remove or Close.
func (c *Client) Insert(ctx context.Context, t Trigger) error {
	w, err := c.begin(t.ID, t.Handle, func(now time.Time) {
		c.keeper.Keep(now, wire.Trigger{ID: t.ID, Handle: t.Handle, Stack: t.Stack, Secret: t.Secret})
	})
	if err != nil {
		return err
	}
	return c.wait(ctx, w, "insert")
}

// Remove removes a trigger that the client keeps, and waits until a server says so. An error means that it may live
// until its lifetime ends. If the client does not keep it, because another receiver has taken it over, there is nothing
// to do.
func (c *Client) Remove(ctx context.Context, id ident.ID, h wire.Handle) error {
	kept := false
	w, err := c.begin(id, h, func(now time.Time) { kept = c.keeper.Forget(now, id, h) })
	if err != nil {
		return err
	}
	if !kept {
		c.end(w)
		return nil
	}
	return c.wait(ctx, w, "remove")
}

// Revoke removes a trigger, whoever keeps it, and waits as Remove does.
func (c *Client) Revoke(ctx context.Context, id ident.ID, h wire.Handle) error {
	w, err := c.begin(id, h, func(now time.Time) { c.keeper.Revoke(now, id, h) })
	if err != nil {
		return err
	}
	return c.wait(ctx, w, "remove")
}

// waiter waits for what becomes of one trigger.
type waiter struct {
	id     ident.ID
	handle wire.Handle
	events chan Event // has room for one
}

func (c *Client) begin(id ident.ID, h wire.Handle, do func(now time.Time)) (*waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return nil, ErrClosed
	}
	w := &waiter{id: id, handle: h, events: make(chan Event, 1)}
	c.waiters = append(c.waiters, w)
	do(time.Now())
	return w, c.conn.SetReadDeadline(time.Now()) // what is due next has changed
}

func (c *Client) wait(ctx context.Context, w *waiter, what string) error {
	defer c.end(w)
	select {
	case e := <-w.events:
		switch e.Kind {
		case Refused:
			return fmt.Errorf("%s a trigger for %s: %s", what, w.id, e.Reason)
		case Unconfirmed:
			return fmt.Errorf("%s a trigger for %s: no server answers", what, w.id)
		default:
			return nil
		}
	case <-c.closed:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%s a trigger for %s: %w", what, w.id, ctx.Err())
	}
}

func (c *Client) end(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.waiters {
		if other == w {
			c.waiters = append(c.waiters[:i], c.waiters[i+1:]...)
			return
		}
	}
}

// event tells those who wait; c.mu is held.
func (c *Client) event(e Event) {
	for _, w := range c.waiters {
		if w.id == e.ID && w.handle == e.Handle {
			select {
			case w.events <- e:
			default:
			}
		}
	}
	if c.options.OnEvent != nil {
		c.options.OnEvent(e)
	}
}

// Send sends a payload to the first identifier of a stack; the others say where it goes on from there. Nobody confirms
// that it arrives.
func (c *Client) Send(stack []ident.ID, payload []byte) error {
	if len(stack) == 0 || len(stack) > wire.MaxDepth || len(payload) > wire.MaxPayload {
		return fmt.Errorf("send %d bytes to %d identifiers: 1 to %d identifiers and %d bytes are possible",
			len(payload), len(stack), wire.MaxDepth, wire.MaxPayload)
	}
	return c.SendPacket(wire.New(wire.Data, stack, payload))
}

// SendPacket sends a packet that the caller has built.
func (c *Client) SendPacket(p wire.Packet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return ErrClosed
	}
	if _, err := c.conn.WriteToUDPAddrPort(p, c.keeper.Gateway()); err != nil {
		return fmt.Errorf("send to gateway: %w", err)
	}
	return nil
}

// Receive waits for a packet.
func (c *Client) Receive(ctx context.Context) (Packet, error) {
	select {
	case p := <-c.received:
		return p, nil
	default:
	}
	select {
	case p := <-c.received:
		return p, nil
	case <-c.closed:
		return Packet{}, ErrClosed
	case <-ctx.Done():
		return Packet{}, ctx.Err()
	}
}

// Close ends the client. Triggers that were not removed end with their lifetime.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.isClosed() {
		c.mu.Unlock()
		return nil
	}
	close(c.closed)
	err := c.conn.Close()
	c.mu.Unlock()
	c.loops.Wait()
	return err
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// write sends a packet of the keeper's; c.mu is held. One that is not sent is repeated as if it was lost.
func (c *Client) write(to netip.AddrPort, p wire.Packet) {
	_, _ = c.conn.WriteToUDPAddrPort(p, to)
}

// read takes in what arrives at a socket, until that is closed.
func (c *Client) read(conn *net.UDPConn) {
	defer c.loops.Done()
	b := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		now := time.Now()
		c.mu.Lock()
		if c.conn != conn {
			c.mu.Unlock()
			return
		}
		if err == nil {
			c.handle(now, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n])
		}
		c.keeper.Tick(now)
		var due time.Time // zero: none
		if at, ok := c.keeper.Due(); ok {
			due = at
		}
		err = conn.SetReadDeadline(due)
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// handle takes in one packet; c.mu is held.
func (c *Client) handle(now time.Time, from netip.AddrPort, b []byte) {
	p, err := wire.Parse(b)
	if err != nil || c.keeper.Handle(now, from, p) {
		return
	}
	switch p.Type() {
	case wire.Delivery:
		stack := p.Stack()
		arrived := Packet{ID: stack[0], Rest: stack[1:], Payload: bytes.Clone(p.Payload()), Server: from}
		select {
		case c.received <- arrived:
		default:
			c.lost++
		}
	case wire.Found, wire.State, wire.Pong:
		c.answered(from, p)
	default: // nothing that a client is sent
	}
}

// Move makes the client receive at another address: a zero address means the one from which this machine now sends to
// a gateway. Its triggers follow at once.
func (c *Client) Move(local netip.AddrPort) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return ErrClosed
	}
	conn, err := c.listen(local)
	if err != nil {
		return err
	}
	c.options.Local = local
	old := c.conn
	c.conn = conn
	c.keeper.Move(time.Now(), localOf(conn))
	c.loops.Add(1)
	go c.read(conn)
	return old.Close()
}
