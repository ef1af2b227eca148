package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// keeping is what recv and insert have in common: triggers that live as long as the command runs.
type keeping struct {
	handle   string
	local    string
	lifetime time.Duration
	timeout  time.Duration
}

func (k *keeping) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.handle, "handle", "", "`SECRET` by which triggers are known: a command that starts later with "+
		"the same one, here or elsewhere, takes them over (default: a random one)")
	f.StringVar(&k.local, "local", "", "`ADDRESS[:PORT]` to receive at (default: the one from which this machine "+
		"sends to the server, also when it changes)")
	f.DurationVar(&k.lifetime, "lifetime", client.DefaultLifetime, "how long triggers live after a kill")
	f.DurationVar(&k.timeout, "timeout", insertTimeout, "how long to wait for a server to store a trigger")
}

// options gives the client's, and where the news of triggers that others took over come.
func (k *keeping) options() (o client.Options, gone <-chan client.Event, err error) {
	if k.lifetime < time.Second {
		return o, nil, usageError{errors.New("--lifetime is at least 1s")}
	}
	if k.local != "" {
		if o.Local, err = netip.ParseAddrPort(k.local); err != nil {
			a, err := netip.ParseAddr(k.local)
			if err != nil {
				return o, nil, usageError{fmt.Errorf("--local %s is no address", k.local)}
			}
			o.Local = netip.AddrPortFrom(a, 0)
		}
	}
	events := make(chan client.Event, 1)
	o.Lifetime = k.lifetime
	o.OnEvent = func(e client.Event) {
		if e.Kind == client.Refused && e.Reason == wire.Superseded {
			select {
			case events <- e:
			default: // one is enough to end the command
			}
		}
	}
	return o, events, nil
}

func (k *keeping) newHandle() wire.Handle {
	if k.handle == "" {
		return client.NewHandle()
	}
	return client.HandleFrom(k.handle)
}

// insert inserts a trigger.
func (k *keeping) insert(ctx context.Context, c *client.Client, t client.Trigger) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	return c.Insert(ctx, t)
}

// remove removes triggers when a command ends, also if it was interrupted.
func (k *keeping) remove(a *app, c *client.Client, triggers []client.Trigger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, t := range triggers {
		if err := c.Remove(ctx, t.ID, t.Handle); err != nil {
			a.note("i3: %v; it ends within %s", err, k.lifetime)
		}
	}
}

// arrival is a packet as JSON.
type arrival struct {
	ID      ident.ID       `json:"id"`
	Name    string         `json:"name,omitempty"` // as on the command line, if it is that one
	Rest    []ident.ID     `json:"rest,omitempty"`
	Text    *string        `json:"text,omitempty"`    // if the payload is UTF-8
	Payload []byte         `json:"payload,omitempty"` // if not: in base64
	Server  netip.AddrPort `json:"server"`
}

func newRecv(a *app) *cobra.Command {
	var k keeping
	var count int
	var asJSON bool
	var secret string
	c := &cobra.Command{
		Use:   "recv ID...",
		Short: "Receive the packets of identifiers",
		Long: `recv inserts a trigger for each identifier that leads to this machine, and writes the payload of
each packet as a line. When it ends, the triggers are removed.

Several receivers of one identifier all get its packets. But of those with the same --handle, only the one that was
started last gets them: so a receiver moves to another machine.`,
		Example: `  i3 recv camera
  i3 recv camera --handle "$(cat secret)"     # here, and later elsewhere`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			triggers, known, err := triggersOf(args, &k, secret)
			if err != nil {
				return err
			}
			o, gone, err := k.options()
			if err != nil {
				return err
			}
			conn, err := a.connect(c.Context(), o)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			var inserted []client.Trigger
			defer func() { k.remove(a, conn, inserted) }()
			for i, t := range triggers {
				if err := k.insert(c.Context(), conn, t); err != nil {
					return err
				}
				inserted = append(inserted, t)
				a.note("receiving %s (%s) at %s", args[i], t.ID, conn.Local())
			}
			return a.receive(c.Context(), conn, gone, count, func(p client.Packet) error {
				if !asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", p.Payload)
					return err
				}
				return json.NewEncoder(a.out).Encode(arrivalOf(p, known))
			})
		},
	}
	k.flags(c)
	f := c.Flags()
	f.IntVarP(&count, "count", "c", 0, "end after so many packets; 0: when interrupted")
	f.BoolVar(&asJSON, "json", false, "write each packet as a JSON object")
	f.StringVar(&secret, "secret", "", "`SECRET` of which the identifiers are made, for servers that want "+
		"constrained ones: senders send to what i3 id NAME --secret SECRET shows")
	return c
}

// triggersOf gives a trigger for each word of the command line, and the words by identifiers.
func triggersOf(words []string, k *keeping, secret string) ([]client.Trigger, map[ident.ID]string, error) {
	var all []client.Trigger
	known := make(map[ident.ID]string)
	for _, word := range words {
		id, err := ident.Parse(word)
		if err != nil {
			return nil, nil, usageError{err}
		}
		t := client.Trigger{ID: id, Handle: k.newHandle()}
		if secret != "" {
			t.Secret = secretKey(secret)
			t.ID = id.WithKey(ident.Left(t.Secret))
		}
		known[t.ID] = word
		all = append(all, t)
	}
	return all, known, nil
}

func arrivalOf(p client.Packet, known map[ident.ID]string) arrival {
	v := arrival{ID: p.ID, Name: known[p.ID], Rest: p.Rest, Server: p.Server}
	if text := string(p.Payload); utf8.ValidString(text) {
		v.Text = &text
	} else {
		v.Payload = p.Payload
	}
	return v
}

// receive hands on packets until there were enough, or ctx ends, or another receiver has taken the triggers over.
func (a *app) receive(ctx context.Context, c *client.Client, gone <-chan client.Event, count int,
	show func(p client.Packet) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case e := <-gone:
			cancel(fmt.Errorf("receive %s: %s", e.ID, e.Reason))
		case <-ctx.Done():
		}
	}()
	for n := 1; ; n++ {
		p, err := c.Receive(ctx)
		switch cause := context.Cause(ctx); {
		case err == nil:
		case errors.Is(cause, context.Canceled):
			return nil
		case cause != nil:
			return cause
		default:
			return err
		}
		if err := show(p); err != nil {
			return fmt.Errorf("write a packet: %w", err)
		}
		if n == count {
			return nil
		}
	}
}
