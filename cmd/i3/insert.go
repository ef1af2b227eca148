package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

func newInsert(a *app) *cobra.Command {
	var k keeping
	var to string
	var leave bool
	c := &cobra.Command{
		Use:   "insert ID --to ID[,ID...]",
		Short: "Make the packets of an identifier go on to others",
		Long: `insert inserts a trigger that leads from an identifier to others, until it is interrupted.
Packets for the first identifier go on to the others: to the first of these, with the rest on their stack. (A trigger
that leads to this machine is what recv inserts.)`,
		Example: `  i3 insert all --to camera
  i3 insert phone --to transcoder,private-phone
  i3 insert all --to camera --leave --handle "$(cat secret)" --lifetime 5m`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := stackOf(args[0])
			if err != nil {
				return err
			}
			if to == "" || len(ids) != 1 {
				return usageError{errors.New("insert wants one identifier, and --to")}
			}
			stack, err := stackOf(to)
			if err != nil {
				return err
			}
			if len(stack) > wire.MaxDepth {
				return usageError{fmt.Errorf("--to has at most %d identifiers", wire.MaxDepth)}
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
			t := client.Trigger{ID: ids[0], Handle: k.newHandle(), Stack: stack}
			if err := k.insert(c.Context(), conn, t); err != nil {
				return err
			}
			a.note("inserted %s (%s)", args[0], t.ID)
			if leave {
				return nil
			}
			defer k.remove(a, conn, []client.Trigger{t})
			select {
			case e := <-gone:
				return fmt.Errorf("keep %s: %s", args[0], e.Reason)
			case <-c.Context().Done():
				return nil
			}
		},
	}
	k.flags(c)
	f := c.Flags()
	f.StringVar(&to, "to", "", "`ID[,ID...]` to which packets go on")
	f.BoolVar(&leave, "leave", false, "end at once; the trigger lives for --lifetime, or as long as servers let it")
	return c
}

func newRemove(a *app) *cobra.Command {
	var handle string
	c := &cobra.Command{
		Use:   "remove ID --handle SECRET",
		Short: "Remove a trigger that was inserted with --handle",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := ident.Parse(args[0])
			if err != nil || handle == "" {
				return usageError{errors.New("remove wants an identifier, and --handle")}
			}
			conn, err := a.connect(c.Context(), client.Options{})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			ctx, cancel := context.WithTimeout(c.Context(), insertTimeout)
			defer cancel()
			return conn.Revoke(ctx, id, client.HandleFrom(handle))
		},
	}
	c.Flags().StringVar(&handle, "handle", "", "`SECRET` that it was inserted with")
	return c
}
