package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// sending is what send's flags say.
type sending struct {
	count, hops, copies int
	interval            time.Duration
}

// check looks at the flags and the stack.
func (s *sending) check(stack []ident.ID) error {
	switch {
	case len(stack) > wire.MaxDepth:
		return usageError{fmt.Errorf("%d identifiers are given: at most %d fit", len(stack), wire.MaxDepth)}
	case s.hops < 1 || s.hops > 255:
		return usageError{errors.New("--hops is 1 to 255")}
	case s.copies < 1 || s.copies > wire.MaxCopies:
		return usageError{fmt.Errorf("--copies is 1 to %d", wire.MaxCopies)}
	case s.count < 0:
		return usageError{errors.New("--count is at least 0")}
	}
	return nil
}

// packet builds a packet.
func (s *sending) packet(stack []ident.ID, payload []byte) (wire.Packet, error) {
	if len(payload) > wire.MaxPayload {
		return nil, fmt.Errorf("send %d bytes: at most %d fit", len(payload), wire.MaxPayload)
	}
	p := wire.New(wire.Data, stack, payload)
	p.SetHopLimit(s.hops)
	p.SetCopies(s.copies)
	return p, nil
}

func newSend(a *app) *cobra.Command {
	var s sending
	c := &cobra.Command{
		Use:   "send ID[,ID...] [MESSAGE...]",
		Short: "Send packets to an identifier",
		Long: `send sends MESSAGE, or else each line of the standard input, as a packet. Of several identifiers
the packet goes to the first one; its receiver finds the others in it, and may send it on to them.

Nobody confirms that a packet arrives.`,
		Example: `  i3 send camera picture please
  i3 send transcoder,phone < film
  i3 send camera tick --count 0 --interval 100ms`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			stack, err := stackOf(args[0])
			if err != nil {
				return err
			}
			if err := s.check(stack); err != nil {
				return err
			}
			conn, err := a.connect(c.Context(), client.Options{})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			send := func(payload []byte) error {
				p, err := s.packet(stack, payload)
				if err != nil {
					return err
				}
				return conn.SendPacket(p)
			}
			if len(args) == 1 {
				return a.sendLines(c.Context(), send)
			}
			message := []byte(strings.Join(args[1:], " "))
			return repeat(c.Context(), s.count, s.interval, func() error { return send(message) })
		},
	}
	f := c.Flags()
	f.IntVarP(&s.count, "count", "c", 1, "send MESSAGE so often; 0: until interrupted")
	f.DurationVarP(&s.interval, "interval", "i", time.Second, "time between two packets")
	f.IntVar(&s.hops, "hops", wire.DefaultHopLimit, "how many servers may send the packet on")
	f.IntVar(&s.copies, "copies", wire.MaxCopies, "how many copies servers may make of the packet")
	return c
}

// sendLines sends each line of the standard input.
func (a *app) sendLines(ctx context.Context, send func(payload []byte) error) error {
	lines := bufio.NewScanner(a.in)
	lines.Buffer(nil, wire.MaxPayload+2)
	for ctx.Err() == nil && lines.Scan() {
		if err := send(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the standard input: %w", err)
	}
	return ctx.Err()
}

// repeat does something count times, or without end if count is 0.
func repeat(ctx context.Context, count int, interval time.Duration, do func() error) error {
	ticker := time.NewTicker(max(interval, 1))
	defer ticker.Stop()
	for i := 1; ; i++ {
		if err := do(); err != nil {
			return err
		}
		if i == count {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newLookup(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lookup ID",
		Short: "Show which server is responsible for an identifier, and the way to it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := ident.Parse(args[0])
			if err != nil {
				return usageError{err}
			}
			conn, err := a.connect(c.Context(), client.Options{})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			found, asked, err := conn.Lookup(c.Context(), id.Key())
			if err != nil {
				return err
			}
			for _, server := range asked {
				fmt.Fprintf(a.out, "asked       %s\n", server)
			}
			fmt.Fprintf(a.out, "responsible %s, key %s\n", found.Addr, found.Key)
			return nil
		},
	}
}
