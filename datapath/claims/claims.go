// Package claims gives ports of the machine to slivers whose processes bind them. Programs at the root of cgroup2 look
// at every bind; who has which port is in a map that they and the agent write. Programs and map are pinned: they go on
// when the agent has ended, and the next one adopts them.
package claims

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/kernel/cgroups"
)

// NetNS is the cookie of a network namespace, which the kernel uses for no other one.
type NetNS uint64

// Nobody is in place of a namespace where a port is no sliver's that binds: it is the machine's, or reserved for a
// sliver that does not claim ports.
const Nobody NetNS = 0

// Binder is what a sliver claims by binding it.
type Binder struct {
	Address     netip.Addr // of its interface to the machine; binding any address claims, too
	First, Last uint16     // the range of ports, of TCP and of UDP
	More        int        // how many it may claim beside those that it has: what it binds then claims nothing
}

// Port is a port of the machine.
type Port struct {
	Protocol uint16 // unix.IPPROTO_TCP or IPPROTO_UDP
	Number   uint16
}

// Claim says whose a port is.
type Claim struct {
	NetNS NetNS
	Age   time.Duration // since it was bound last
}

// tellsPerSecond bounds how often a sliver that binds and binds makes the agent look.
const tellsPerSecond = 5

// Claims are those of one machine. Its methods may be called from many goroutines.
type Claims struct {
	object objectObjects
	news   *ringbuf.Reader
	end    context.CancelFunc
	done   chan struct{}
}

// Open adopts the claims that are pinned in a directory of a bpf file system, or begins with none. tell is called soon
// after a process has claimed a port, perhaps before it has it; it must not wait.
func Open(dir string, tell func()) (c *Claims, err error) {
	c = &Claims{done: make(chan struct{})}
	if err := c.open(dir); err != nil {
		return nil, fmt.Errorf("hear of ports that are bound: %w", errors.Join(err, c.object.Close()))
	}
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	go c.run(ctx, tell)
	return c, nil
}

func (c *Claims) open(dir string) error {
	err := c.load(dir)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version: what is bound is found by its sockets
		if err = Remove(dir); err == nil {
			err = c.load(dir)
		}
	}
	if err != nil {
		return err
	}
	if c.news, err = ringbuf.NewReader(c.object.News); err != nil {
		return err
	}
	root, err := cgroups.Root()
	if err != nil {
		return errors.Join(err, c.news.Close())
	}
	for _, p := range []struct {
		name    string
		program *ebpf.Program
		attach  ebpf.AttachType
	}{
		{objectProgBind4, c.object.Bind4, ebpf.AttachCGroupInet4Bind},
		{objectProgBind6, c.object.Bind6, ebpf.AttachCGroupInet6Bind},
	} {
		if err := attach(filepath.Join(dir, p.name), root, p.program, p.attach); err != nil {
			return errors.Join(fmt.Errorf("attach %s: %w", p.name, err), c.news.Close())
		}
	}
	return nil
}

func (c *Claims) load(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	return loadObjectObjects(&c.object, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}})
}

// attach puts a program in the place of an older one that is pinned, or attaches it for all processes.
func attach(pin, root string, p *ebpf.Program, to ebpf.AttachType) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		err = errors.Join(l.Update(p), l.Close())
		if !errors.Is(err, unix.ENOLINK) {
			return err
		}
		err = os.Remove(pin) // a process was killed while it removed the claims
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open the pinned BPF link: %w", err)
	}
	made, err := link.AttachCgroup(link.CgroupOptions{Path: root, Attach: to, Program: p})
	if err != nil {
		return err
	}
	return errors.Join(made.Pin(pin), made.Close())
}

func (c *Claims) run(ctx context.Context, tell func()) {
	defer close(c.done)
	limit := rate.NewLimiter(tellsPerSecond, 1)
	var record ringbuf.Record
	for limit.Wait(ctx) == nil {
		err := c.news.ReadInto(&record)
		for err == nil && c.news.AvailableBytes() > 0 {
			err = c.news.ReadInto(&record)
		}
		if errors.Is(err, os.ErrClosed) {
			return
		}
		tell()
	}
}

// Close lets go of the claims, which stay.
func (c *Claims) Close() error {
	c.end()
	err := c.news.Close()
	<-c.done
	return errors.Join(err, c.object.Close())
}

// Remove ends all claims that are pinned in a directory, at once. (If the last close of a BPF link were to do it, the
// kernel would, in the background.)
func Remove(dir string) (err error) {
	for _, name := range []string{objectProgBind4, objectProgBind6} {
		l, missing := link.LoadPinnedLink(filepath.Join(dir, name), nil)
		if missing == nil {
			err = errors.Join(err, l.Detach(), l.Close())
		}
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("unpin claims of ports: %w", err)
	}
	return nil
}

// Present reports whether there are claims pinned in a directory.
func Present(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// Supported returns nil if the kernel can tell of binds, and refuse them. It attaches the programs to no process.
func Supported() error {
	if _, err := cgroups.Root(); err != nil {
		return err
	}
	spec, err := loadObject()
	if err != nil {
		return err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	var object objectObjects
	if err := spec.LoadAndAssign(&object, nil); err != nil {
		return err
	}
	return object.Close()
}

// Here gives the network namespace of the calling thread.
func Here() (NetNS, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("identify a network namespace: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("identify a network namespace: %w", err)
	}
	return NetNS(cookie), nil
}

// Bind lets a sliver claim ports by binding them.
func (c *Claims) Bind(netns NetNS, b Binder) error {
	at := b.Address.As4()
	value := objectBinder{
		Address: binary.NativeEndian.Uint32(at[:]), First: b.First, Last: b.Last, More: int32(b.More),
	}
	if err := c.object.Binders.Put(netns, &value); err != nil {
		return fmt.Errorf("let a sliver claim ports %d to %d: %w", b.First, b.Last, err)
	}
	return nil
}

// Retain lets no other slivers than these claim ports from now on. What others have claimed stays.
func (c *Claims) Retain(keep func(NetNS) bool) error {
	var netns NetNS
	var value objectBinder
	var gone []NetNS
	all := c.object.Binders.Iterate()
	for all.Next(&netns, &value) {
		if !keep(netns) {
			gone = append(gone, netns)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("list slivers that claim ports: %w", err)
	}
	for _, netns := range gone {
		if err := c.object.Binders.Delete(netns); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("let a sliver claim no more ports: %w", err)
		}
	}
	return nil
}

// Of says whose a port is; false: it is nobody's, and free.
func (c *Claims) Of(p Port) (NetNS, bool, error) {
	var is objectClaim
	err := c.object.Claims.Lookup(&objectPort{Protocol: p.Protocol, Number: p.Number}, &is)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read whose port %d is: %w", p.Number, err)
	}
	return NetNS(is.Netns), true, nil
}

// All lists whose each port is.
func (c *Claims) All() (map[Port]Claim, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	var port objectPort
	var value objectClaim
	all := map[Port]Claim{}
	claims := c.object.Claims.Iterate()
	for claims.Next(&port, &value) {
		all[Port{port.Protocol, port.Number}] = Claim{
			NetNS(value.Netns), time.Duration(now.Nano() - int64(value.Since)),
		}
	}
	if err := claims.Err(); err != nil {
		return nil, fmt.Errorf("list claims of ports: %w", err)
	}
	return all, nil
}

// Give makes a port a sliver's, or Nobody's, whoever had it.
func (c *Claims) Give(p Port, to NetNS) error {
	err := c.object.Claims.Put(&objectPort{Protocol: p.Protocol, Number: p.Number}, &objectClaim{Netns: uint64(to)})
	if err != nil {
		return fmt.Errorf("claim port %d: %w", p.Number, err)
	}
	return nil
}

// Release lets anybody claim a port.
func (c *Claims) Release(p Port) error {
	err := c.object.Claims.Delete(&objectPort{Protocol: p.Protocol, Number: p.Number})
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("release port %d: %w", p.Number, err)
	}
	return nil
}
