// Package daemon runs a server of I3 on a socket.
package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/pergola-net/pergola/i3/server"
)

// Conn is a UDP socket (net.UDPConn).
type Conn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	SetReadDeadline(t time.Time) error
}

// Daemon is a server on a socket.
type Daemon struct {
	// Linger is how long Run, after it has left the ring, still passes packets on, until the other servers know.
	Linger time.Duration

	conn    Conn
	server  *server.Server // used by Run alone
	log     *slog.Logger
	inspect chan func(s *server.Server)
	done    chan struct{} // closed when Run has ended
	failed  bool          // the last packet could not be sent
}

// DefaultLinger is the Linger of a new daemon.
const DefaultLinger = 3 * time.Second

// longest is the longest pause between two looks at the clock.
const longest = time.Minute

// New makes a daemon. Secret and Ring.Nonce of the configuration are made here.
func New(conn Conn, c server.Config) *Daemon {
	_, _ = rand.Read(c.Secret[:]) // does not fail (crypto/rand)
	c.Ring.Nonce = func() uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:])
		return binary.BigEndian.Uint64(b[:])
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{Linger: DefaultLinger, conn: conn, log: c.Log, inspect: make(chan func(s *server.Server), 1),
		done: make(chan struct{})}
	d.server = server.New(c, d)
	return d
}

// Run serves until ctx ends; then it leaves the ring in order. An error is one of the socket.
func (d *Daemon) Run(ctx context.Context) error {
	defer close(d.done)
	stop := context.AfterFunc(ctx, d.wake)
	defer stop()
	if err := d.serve(ctx, time.Time{}); err != nil {
		return err
	}
	now := time.Now()
	d.server.Leave(now)
	return d.serve(context.WithoutCancel(ctx), now.Add(d.Linger))
}

// Inspect calls look between two packets, with the server, and waits for it. It does nothing when Run has ended.
func (d *Daemon) Inspect(look func(s *server.Server)) {
	looked := make(chan struct{})
	select {
	case d.inspect <- func(s *server.Server) { look(s); close(looked) }:
	case <-d.done:
		return
	}
	d.wake()
	select {
	case <-looked:
	case <-d.done:
	}
}

// wake makes serve look at ctx and inspect. Serve looks at them after it has set a deadline, so none is overlooked. The
// error of a socket that is closed is Run's.
func (d *Daemon) wake() { _ = d.conn.SetReadDeadline(time.Unix(1, 0)) }

// serve is one goroutine: packets and time go into the server one after the other. It ends with ctx or, if that is not
// zero, at end.
func (d *Daemon) serve(ctx context.Context, end time.Time) error {
	b := make([]byte, 65536)
	for set := (time.Time{}); ; {
		now := time.Now()
		if !end.IsZero() && !now.Before(end) {
			return nil
		}
		due, ok := d.server.Due()
		if ok && !now.Before(due) {
			d.server.Tick(now)
			continue
		}
		if until := d.until(now, due, ok, end); !until.Equal(set) {
			if err := d.conn.SetReadDeadline(until); err != nil {
				return err
			}
			set = until
		}
		select {
		case look := <-d.inspect:
			look(d.server)
		case <-ctx.Done():
			return nil
		default:
		}
		n, from, err := d.conn.ReadFromUDPAddrPort(b)
		switch {
		case err == nil:
			d.server.Handle(time.Now(), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n])
		case errors.Is(err, os.ErrDeadlineExceeded):
			set = time.Time{}
		default:
			return err
		}
	}
}

// until gives the time until which serve may wait for a packet.
func (d *Daemon) until(now, due time.Time, ok bool, end time.Time) time.Time {
	until := now.Add(longest)
	if ok && due.Before(until) {
		until = due
	}
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	return until
}

// Send makes a daemon the output of its server. A packet that the kernel refuses is lost, as on any network; the first
// one of several is logged.
func (d *Daemon) Send(to netip.AddrPort, packet []byte) {
	_, err := d.conn.WriteToUDPAddrPort(packet, to)
	if err != nil && !d.failed {
		d.log.Warn("send", "to", to, "bytes", len(packet), "error", err)
	}
	d.failed = err != nil
}
