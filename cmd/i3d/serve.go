package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/daemon"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/names"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/wire"
)

// flags are the command line's.
type flags struct {
	listen      string
	join        []string
	position    string
	ringKey     string
	constrained bool
	triggers    int
	lifetime    time.Duration
	stabilize   time.Duration
	linger      time.Duration
	fastpath    bool
	verbose     bool
}

func newRoot(stderr io.Writer) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "i3d",
		Short: "A server of I3, the Internet Indirection Infrastructure",
		Long: `i3d is a server of I3. Senders send packets to identifiers; receivers insert triggers, which say
that they want the packets of an identifier; the servers bring the two together. They form a Chord ring, in which each
is responsible for an interval of the identifiers.

The first server of a ring is started without --join, all others with the address of one or more that are there.
Name several: if one of them has lost the others, they find it again.

SIGTERM and SIGINT make the server hand its triggers to its neighbour and leave the ring; SIGUSR1 makes it log its
counters.

Exit status: 0 it was asked to end; 1 failed; 2 the command line is wrong.`,
		Example: `  i3d               # the first server, at this machine's address, UDP port 5610
  i3d --join n1     # another one
  i3d --listen 192.0.2.7:5610 --join 192.0.2.1 --join 192.0.2.2 --ring-key /etc/i3.key`,
		Version: version,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.NoArgs(c, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			return serve(c.Context(), &f, stderr)
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	c.SetErr(stderr)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	c.SetVersionTemplate("i3d {{.Version}}\n")
	p := c.Flags()
	p.StringVar(&f.listen, "listen", "", "`ADDRESS`[:PORT] by which others reach this server "+
		"(default: the one from which this machine sends to the first --join, or else its first; port 5610)")
	p.StringArrayVar(&f.join, "join", nil, "`SERVER`[:PORT] of the ring to join; may be repeated")
	p.StringVar(&f.position, "position", "", "place in the ring: that of the identifier `ID` "+
		"(default: of the server's address as a name)")
	p.StringVar(&f.ringKey, "ring-key", "", "`FILE` with a secret that all servers of the ring have; without it, "+
		"anybody can act as a server")
	p.BoolVar(&f.constrained, "constrained", false, "accept constrained triggers only (docs/i3.md)")
	p.IntVar(&f.triggers, "max-triggers", 0, "accept at most `N` triggers (default 65536)")
	p.DurationVar(&f.lifetime, "max-lifetime", server.DefaultLifetime,
		"let triggers live so long without a refresh")
	p.DurationVar(&f.stabilize, "stabilize", chord.DefaultStabilize, "look at the neighbours in the ring so often")
	p.DurationVar(&f.linger, "linger", daemon.DefaultLinger, "after leaving the ring, pass packets on for so long")
	p.BoolVar(&f.fastpath, "fastpath", false, "program the packet program of this Pergola node, which is i3.c, as "+
		"a fast path (docs/i3.md)")
	p.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
	return c
}

// serve opens the socket and runs the server.
func serve(ctx context.Context, f *flags, stderr io.Writer) error {
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	config, err := configure(ctx, f)
	if err != nil {
		return err
	}
	config.Log = log
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(config.Ring.Self.Addr))
	if err != nil {
		return fmt.Errorf("open the socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	// Bursts wait here while the process does not run. What the kernel gives is enough, if it gives less.
	_ = conn.SetReadBuffer(4 << 20)

	if f.fastpath {
		fast, stop, err := openFastPath(ctx, config.Ring.Self.Addr, log)
		if err != nil {
			return err
		}
		defer stop()
		config.FastPath = fast
	}
	d := daemon.New(conn, config)
	d.Linger = f.linger
	log.Info("serving", "address", config.Ring.Self.Addr, "key", config.Ring.Self.Key, "join", config.Ring.Join)
	show := make(chan os.Signal, 1)
	signal.Notify(show, syscall.SIGUSR1)
	defer signal.Stop(show)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-show:
				d.Inspect(func(s *server.Server) { logCounters(log, s) })
			case <-done:
				return
			}
		}
	}()
	return d.Run(ctx)
}

// configure makes the server's configuration of the command line.
func configure(ctx context.Context, f *flags) (c server.Config, err error) {
	if c.Ring.Join, err = names.ResolveAll(ctx, f.join); err != nil {
		return c, err
	}
	if c.Ring.Self.Addr, err = ownAddress(ctx, f.listen, c.Ring.Join); err != nil {
		return c, err
	}
	position := ident.FromName(c.Ring.Self.Addr.String())
	if f.position != "" {
		if position, err = ident.Parse(f.position); err != nil {
			return c, usageError{err}
		}
	}
	c.Ring.Self.Key = position.Key()
	if f.ringKey != "" {
		key, err := os.ReadFile(f.ringKey)
		if err != nil {
			return c, fmt.Errorf("read the ring's key: %w", err)
		}
		if c.RingKey = bytes.TrimSpace(key); len(c.RingKey) == 0 {
			return c, fmt.Errorf("read the ring's key: %s is empty", f.ringKey)
		}
	}
	if f.triggers < 0 || f.lifetime < time.Second || f.stabilize <= 0 || f.linger < 0 {
		return c, usageError{errors.New("--max-triggers, --stabilize and --linger cannot be negative, " +
			"--max-lifetime is at least 1s")}
	}
	c.Constrained, c.Triggers.Triggers, c.Lifetime = f.constrained, f.triggers, f.lifetime
	c.Ring.Stabilize = f.stabilize
	return c, nil
}

// ownAddress gives the address of the server. It must be one by which others reach it, because it is its name in the
// ring.
func ownAddress(ctx context.Context, listen string, join []netip.AddrPort) (netip.AddrPort, error) {
	if listen != "" {
		a, err := names.Resolve(ctx, listen)
		if err == nil && a.Addr().IsUnspecified() {
			err = usageError{fmt.Errorf("--listen %s: others must be able to reach the address", listen)}
		}
		return a, err
	}
	if len(join) > 0 {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(join[0]))
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("find the way to %s: %w", join[0], err)
		}
		a := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return netip.AddrPortFrom(a, wire.Port), conn.Close()
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var best netip.Addr
	for _, one := range all {
		p, err := netip.ParsePrefix(one.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if !best.IsValid() || p.Addr().Is4() && !best.Is4() {
			best = p.Addr()
		}
	}
	if !best.IsValid() {
		return netip.AddrPort{}, usageError{errors.New("this machine has no address for others: give --listen")}
	}
	return netip.AddrPortFrom(best, wire.Port), nil
}

// logCounters writes what the server has done.
func logCounters(log *slog.Logger, s *server.Server) {
	c := s.Counters()
	values := []any{"received", c.Received, "passed", c.Passed, "delivered", c.Delivered,
		"redirected", c.Redirected, "triggers", c.Triggers, "inserted", c.Inserted,
		"challenged", c.Challenged, "refused", c.Refused, "removed", c.Removed,
		"expired", c.Expired, "handed_over", c.HandedOver, "taken_over", c.TakenOver}
	for why, n := range c.Dropped {
		values = append(values, "dropped_"+server.Drop(why).String(), n)
	}
	log.Info("counters", values...)
}
