package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// ErrSilent says that a server did not answer.
var ErrSilent = errors.New("no answer")

const (
	askTries   = 4
	askTimeout = 500 * time.Millisecond
	maxSteps   = 2 * ident.Exact
)

// answer is what a server said.
type answer struct {
	from    netip.AddrPort
	message chord.Message
}

// answered hands an answer to the one who waits for it; c.mu is held.
func (c *Client) answered(from netip.AddrPort, p wire.Packet) {
	m, _, err := wire.ParseRing(p, nil)
	if err != nil {
		return
	}
	if waits := c.calls[m.Nonce]; waits != nil {
		select {
		case waits <- answer{from: from, message: m}:
		default:
		}
	}
}

// ask sends a server of the ring a request, and gives its answer.
func (c *Client) ask(ctx context.Context, to netip.AddrPort, m chord.Message) (chord.Message, error) {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // does not fail (crypto/rand)
	m.Nonce = binary.BigEndian.Uint64(nonce[:])
	answers := make(chan answer, 1)
	c.mu.Lock()
	c.calls[m.Nonce] = answers
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, m.Nonce)
		c.mu.Unlock()
	}()
	for range askTries {
		c.mu.Lock()
		c.write(to, wire.Ring(m, nil))
		c.mu.Unlock()
		timeout := time.NewTimer(askTimeout)
		select {
		case a := <-answers:
			timeout.Stop()
			if a.from == to && a.message.Kind == m.Kind+1 {
				return a.message, nil
			}
		case <-timeout.C:
		case <-c.closed:
			return chord.Message{}, ErrClosed
		case <-ctx.Done():
			return chord.Message{}, ctx.Err()
		}
	}
	return chord.Message{}, fmt.Errorf("ask server %s: %w", to, ErrSilent)
}

// Reach finds a gateway that answers, and uses it from then on.
func (c *Client) Reach(ctx context.Context) error {
	var failed []error
	for range c.options.Gateways {
		c.mu.Lock()
		to := c.keeper.Gateway()
		c.mu.Unlock()
		_, err := c.ask(ctx, to, chord.Message{Kind: chord.Ping})
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
		c.mu.Lock()
		c.keeper.NextGateway()
		c.mu.Unlock()
	}
	return errors.Join(failed...)
}

// Lookup finds the server that is responsible for a key, and gives the servers that were asked on the way to it.
func (c *Client) Lookup(ctx context.Context, k ident.Key) (found chord.Peer, asked []netip.AddrPort, err error) {
	c.mu.Lock()
	to := c.keeper.Gateway()
	c.mu.Unlock()
	for len(asked) < maxSteps {
		asked = append(asked, to)
		m, err := c.ask(ctx, to, chord.Message{Kind: chord.Find, Key: k, Peers: make([]chord.Peer, 1)})
		if err != nil {
			return chord.Peer{}, asked, err
		}
		if len(m.Peers) != 1 || !m.Peers[0].Addr.IsValid() {
			return chord.Peer{}, asked, fmt.Errorf("ask server %s for %s: it names no server", to, k)
		}
		if m.Done {
			return m.Peers[0], asked, nil
		}
		to = m.Peers[0].Addr
	}
	return chord.Peer{}, asked, fmt.Errorf("look %s up: servers send each other's clients in circles", k)
}

// Neighbours gives what a server knows of its place in the ring: itself, its predecessor (zero if it has none), and its
// successors.
func (c *Client) Neighbours(ctx context.Context, server netip.AddrPort) (self, before chord.Peer, after []chord.Peer,
	err error) {
	m, err := c.ask(ctx, server, chord.Message{Kind: chord.Query, Peers: make([]chord.Peer, chord.MaxPeers)})
	if err != nil {
		return self, before, nil, err
	}
	if len(m.Peers) == 0 {
		return self, before, nil, fmt.Errorf("ask server %s for its neighbours: the answer is empty", server)
	}
	return m.From, m.Peers[0], m.Peers[1:], nil
}
