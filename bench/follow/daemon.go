package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/vnet"
)

// daemon does the least that a routing daemon does: the kernel notifies it that an interface has lost its carrier,
// and it changes a route. It does so on both sides of a comparison.
type daemon struct {
	node    *vnet.Node
	index   int
	change  vnet.Change
	links   *rtnl.Conn
	armed   atomic.Bool // otherwise it only watches
	carrier atomic.Bool
	ended   atomic.Bool
	done    chan error
}

func startDaemon(n *vnet.Node, device string, change vnet.Change) (_ *daemon, err error) {
	d := &daemon{node: n, change: change, done: make(chan error, 1)}
	if d.index, err = n.Index(device); err != nil {
		return nil, err
	}
	if d.links, err = rtnl.OpenIn(n.NS, unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("watch the links of %s: %w", n.Name, err)
	}
	err = d.links.Join(unix.RTNLGRP_LINK)
	if err == nil { // so often it looks whether it shall stop
		err = unix.SetsockoptTimeval(d.links.FD(), unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Usec: 20_000})
	}
	if err == nil {
		err = d.ask()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the links of %s: %w", n.Name, err), d.links.Close())
	}
	go func() { d.done <- traffic.OnCPU(other(), d.run) }()
	return d, nil
}

// ask requests the list of links, which run reads.
func (d *daemon) ask() error {
	request := rtnl.Request(unix.RTM_GETLINK, unix.NLM_F_DUMP, make([]byte, unix.SizeofIfInfomsg))
	return unix.Sendto(d.links.FD(), request, 0, rtnl.Kernel())
}

func (d *daemon) run() error {
	b := make([]byte, 1<<16)
	for !d.ended.Load() {
		n, _, err := unix.Recvfrom(d.links.FD(), b, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("watch links: %w", err)
		}
		for rest := b[:n]; len(rest) > 0; {
			var m rtnl.Message
			if m, rest, err = rtnl.NextMessage(rest); err == nil {
				err = d.take(m)
			}
			if err != nil {
				return fmt.Errorf("watch links: %w", err)
			}
		}
	}
	return nil
}

// take looks at struct ifinfomsg.
func (d *daemon) take(m rtnl.Message) error {
	if m.Kind != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg ||
		int(binary.NativeEndian.Uint32(m.Data[4:])) != d.index {
		return nil
	}
	carrier := binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_RUNNING != 0
	d.carrier.Store(carrier)
	if carrier || !d.armed.Swap(false) {
		return nil
	}
	return d.node.Apply(d.change)
}

// awaitCarrier waits until the kernel has notified it of one.
func (d *daemon) awaitCarrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !d.carrier.Load() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the carrier of interface %d of %s: %w", d.index,
				d.node.Name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (d *daemon) stop() error {
	d.ended.Store(true)
	return errors.Join(<-d.done, d.links.Close())
}
