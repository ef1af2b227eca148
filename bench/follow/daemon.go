package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// daemon does the least that a routing daemon does: it hears from the kernel that an interface has lost its carrier, and changes a
// route. It does so on both sides of a comparison.
type daemon struct {
	node    *vnet.Node
	index   int
	change  vnet.Change
	fd      int
	armed   atomic.Bool // otherwise it only watches
	carrier atomic.Bool
	ended   atomic.Bool
	done    chan error
}

func startDaemon(n *vnet.Node, device string, change vnet.Change) (_ *daemon, err error) {
	d := &daemon{node: n, change: change, fd: -1, done: make(chan error, 1)}
	if d.index, err = n.Index(device); err != nil {
		return nil, err
	}
	err = netns.In(n.NS, func() (err error) {
		d.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	if err == nil {
		err = unix.Bind(d.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
	}
	if err == nil { // so often it looks whether it shall stop
		err = unix.SetsockoptTimeval(d.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000})
	}
	if err == nil {
		err = d.ask()
	}
	if err != nil {
		if d.fd >= 0 {
			err = errors.Join(err, unix.Close(d.fd))
		}
		return nil, fmt.Errorf("watch the links of %s: %w", n.Name, err)
	}
	go func() { d.done <- traffic.OnCPU(other(), d.run) }()
	return d, nil
}

// ask makes the kernel say what there is.
func (d *daemon) ask() error {
	b := binary.NativeEndian.AppendUint32(nil, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	b = binary.NativeEndian.AppendUint16(b, unix.RTM_GETLINK)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, make([]byte, 8+unix.SizeofIfInfomsg)...)
	return unix.Sendto(d.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

func (d *daemon) run() error {
	b := make([]byte, 1<<16)
	for !d.ended.Load() {
		n, _, err := unix.Recvfrom(d.fd, b, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hear of links: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return fmt.Errorf("hear of links: %w", err)
		}
		for _, m := range messages {
			if err := d.hear(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// hear looks at struct ifinfomsg.
func (d *daemon) hear(m syscall.NetlinkMessage) error {
	if m.Header.Type != unix.RTM_NEWLINK || int(binary.NativeEndian.Uint32(m.Data[4:])) != d.index {
		return nil
	}
	carrier := binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_RUNNING != 0
	d.carrier.Store(carrier)
	if carrier || !d.armed.Swap(false) {
		return nil
	}
	return d.node.Apply(d.change)
}

// awaitCarrier waits until the kernel has said that there is one.
func (d *daemon) awaitCarrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !d.carrier.Load() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the carrier of interface %d of %s: %w", d.index, d.node.Name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (d *daemon) stop() error {
	d.ended.Store(true)
	return errors.Join(<-d.done, unix.Close(d.fd))
}
