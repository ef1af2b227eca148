package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
)

// place is a server of the ring, as JSON.
type place struct {
	Key         ident.Key      `json:"key"`
	Server      netip.AddrPort `json:"server"`
	Predecessor string         `json:"predecessor"` // "": it knows none
	Error       string         `json:"error,omitempty"`
}

func newRing(a *app) *cobra.Command {
	var asJSON bool
	var size int
	c := &cobra.Command{
		Use:   "ring",
		Short: "Show the servers of the ring, in its order",
		Long: `ring asks one server after the other for its neighbours. It exits with 1 if a server does not
answer, or if one has a predecessor that is not the server before it: that is so for some seconds when servers come
and go.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := a.connect(c.Context(), client.Options{})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			ring, err := walk(c, conn)
			if err != nil {
				return err
			}
			wrong := check(ring)
			if asJSON {
				if err := json.NewEncoder(a.out).Encode(ring); err != nil {
					return err
				}
			} else {
				table(a, ring)
			}
			if wrong > 0 {
				return fmt.Errorf("%d of %d servers do not know the one before them", wrong, len(ring))
			}
			if size > 0 && len(ring) != size {
				return fmt.Errorf("the ring has %d servers, not %d", len(ring), size)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write a JSON array")
	c.Flags().IntVar(&size, "size", 0, "fail unless the ring has `N` servers")
	return c
}

// most is how many servers a ring may have that ring shows.
const most = 10000

// walk goes from successor to successor, once around.
func walk(c *cobra.Command, conn *client.Client) (ring []place, err error) {
	found, _, err := conn.Lookup(c.Context(), ident.Key{})
	if err != nil {
		return nil, err
	}
	seen := make(map[netip.AddrPort]bool)
	for at := found; !seen[at.Addr] && len(ring) < most; {
		seen[at.Addr] = true
		one := place{Key: at.Key, Server: at.Addr}
		_, before, after, err := conn.Neighbours(c.Context(), at.Addr)
		if err != nil {
			one.Error = err.Error()
			return append(ring, one), c.Context().Err()
		}
		if !before.IsZero() {
			one.Predecessor = before.Addr.String()
		}
		ring = append(ring, one)
		if len(after) == 0 {
			break
		}
		at = chord.Peer{Key: after[0].Key, Addr: after[0].Addr}
	}
	return ring, nil
}

// check counts the servers whose predecessor is not the one before them, or that do not answer.
func check(ring []place) (wrong int) {
	for i, p := range ring {
		want := ring[(i+len(ring)-1)%len(ring)].Server.String()
		if len(ring) == 1 {
			want = ""
		}
		if p.Error != "" || p.Predecessor != want {
			wrong++
		}
	}
	return wrong
}

func table(a *app, ring []place) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tSERVER\tPREDECESSOR")
	for _, p := range ring {
		before := p.Predecessor
		if p.Error != "" {
			before = p.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Key, p.Server, before)
	}
	_ = w.Flush() // an error of the output is that of the last write, too
}

func newID(a *app) *cobra.Command {
	var secret, to string
	c := &cobra.Command{
		Use:   "id NAME",
		Short: "Show the identifier of a name",
		Long: `id shows the 64 digits of a name's identifier. Servers that run with --constrained accept
triggers only for identifiers that are made of where they lead: --secret gives the one that recv receives with the same
--secret, and --to the one that may lead to another identifier.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := ident.Parse(args[0])
			if err != nil {
				return usageError{err}
			}
			switch {
			case secret != "":
				id = id.WithKey(ident.Left(secretKey(secret)))
			case to != "":
				target, err := ident.Parse(to)
				if err != nil {
					return usageError{err}
				}
				id = id.WithKey(ident.Left(target.Key()))
			}
			fmt.Fprintln(a.out, id)
			return nil
		},
	}
	c.Flags().StringVar(&secret, "secret", "", "the `SECRET` of its receiver")
	c.Flags().StringVar(&to, "to", "", "the `ID` to which it leads")
	c.MarkFlagsMutuallyExclusive("secret", "to")
	return c
}
