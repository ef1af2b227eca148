package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/wording"
)

// AnyInterface stands for all interfaces of a node.
const AnyInterface = "any"

// CaptureOptions says what Capture takes. The zero value takes every frame in full until ctx ends.
type CaptureOptions struct {
	Snaplen int                  // bytes of each frame; 0: all
	Count   int                  // frames after which it ends; 0: no end
	Promisc bool                 // frames for other stations too, on a LAN
	Filter  []bpf.RawInstruction // what the kernel lets through; see CompileFilter
	// Started is called once frames are being captured; it may be nil.
	Started func()
}

// Capture writes the frames that pass a node's interface, or all of its interfaces, to w: as pcapng with nanoseconds,
// one frame at a time, so that a reader sees them as they come. It returns nil when ctx ends, when the interface or the
// node goes, or after Count frames. It is passive: only the node's own kernel is asked, nothing is started there.
func Capture(ctx context.Context, pid int, iface string, opt CaptureOptions, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	taps, err := openTaps(pid, iface, opt)
	if err != nil {
		return fmt.Errorf("capture on %s: %w", iface, err)
	}
	defer func() {
		for _, t := range taps {
			_ = t.handle.Close()
		}
	}()
	// A packet socket keeps the namespace, and the interfaces in it, beyond the death of the node.
	go func() {
		defer cancel()
		waitExit(ctx, pid)
	}()
	out, err := newRecorder(w, taps, opt)
	if err != nil {
		return fmt.Errorf("capture on %s: %w", iface, err)
	}
	if opt.Started != nil {
		opt.Started()
	}
	if err := out.record(ctx, cancel, taps); err != nil {
		return fmt.Errorf("capture on %s: %w", iface, err)
	}
	return nil
}

// tap is one interface that is listened to.
type tap struct {
	pid    int
	handle *pcapgo.EthernetHandle
	name   string
	index  int
	number int       // in the pcapng file
	since  time.Time // what was caught before passed no filter yet
}

// openTaps opens the interfaces inside the node's namespace; they are read from outside.
func openTaps(pid int, iface string, opt CaptureOptions) ([]*tap, error) {
	var taps []*tap
	err := netns.Do(netns.Path(pid), func() error {
		there, err := net.Interfaces()
		if err != nil {
			return err
		}
		names := make([]string, len(there))
		for i, link := range there {
			names[i] = link.Name
			if link.Name != iface && iface != AnyInterface {
				continue
			}
			t, err := openTap(pid, link, opt)
			if err != nil {
				return err
			}
			taps = append(taps, t)
		}
		if len(taps) == 0 {
			return noInterface(iface, names)
		}
		return nil
	})
	if err != nil {
		for _, t := range taps {
			_ = t.handle.Close()
		}
		return nil, err
	}
	return taps, nil
}

func openTap(pid int, link net.Interface, opt CaptureOptions) (*tap, error) {
	h, err := pcapgo.NewEthernetHandle(link.Name)
	if err != nil {
		return nil, err
	}
	if len(opt.Filter) > 0 {
		err = h.SetBPF(opt.Filter)
	}
	if err == nil && opt.Promisc {
		err = h.SetPromiscuous(true)
	}
	if err == nil && opt.Snaplen > 0 {
		err = h.SetCaptureLength(opt.Snaplen)
	}
	if err != nil {
		_ = h.Close()
		return nil, err
	}
	return &tap{pid: pid, handle: h, name: link.Name, index: link.Index, since: time.Now()}, nil
}

// noInterface names the interfaces that exist, and the one that was probably meant.
func noInterface(wanted string, existing []string) error {
	slices.Sort(existing)
	hint := ""
	if meant := wording.DidYouMean(wanted, existing); meant != "" {
		hint = "; " + meant
	}
	return fmt.Errorf("no such interface: there are %s%s", strings.Join(existing, ", "), hint)
}

// recorder writes one capture file. Frames of several interfaces come from several goroutines.
type recorder struct {
	mu   sync.Mutex // guards all below
	out  *pcapgo.NgWriter
	left int   // frames that are still wanted; below zero: no end
	err  error // the first failure to write
}

func newRecorder(w io.Writer, taps []*tap, opt CaptureOptions) (*recorder, error) {
	r := &recorder{left: opt.Count}
	if opt.Count <= 0 {
		r.left = -1
	}
	for _, t := range taps {
		intf := pcapgo.NgInterface{
			Name:                t.name,
			OS:                  "Linux",
			LinkType:            layers.LinkTypeEthernet,
			TimestampResolution: 9,
			SnapLength:          uint32(opt.Snaplen),
		}
		var err error
		if r.out == nil {
			r.out, err = pcapgo.NewNgWriterInterface(w, intf, pcapgo.DefaultNgWriterOptions)
		} else {
			t.number, err = r.out.AddInterface(intf)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, r.out.Flush() // a reader on a pipe can begin
}

// record takes frames from all taps until ctx ends. stop ends it from within.
func (r *recorder) record(ctx context.Context, stop func(), taps []*tap) error {
	var wg sync.WaitGroup
	for _, t := range taps {
		wg.Go(func() {
			r.take(ctx, t, stop)
			if len(taps) == 1 {
				stop()
			}
		})
	}
	<-ctx.Done()
	for _, t := range taps {
		_ = t.handle.Close() // wakes its reader
	}
	wg.Wait()
	return r.err
}

// take reads one tap until it ends: closed, its interface gone, or nothing more is wanted.
func (r *recorder) take(ctx context.Context, t *tap, stop func()) {
	for {
		frame, info, err := t.handle.ReadPacketData()
		if err != nil {
			if !t.comesBack(ctx) {
				return
			}
			continue
		}
		if info.InterfaceIndex != t.index {
			continue // caught before the socket was bound
		}
		if info.Timestamp.Before(t.since) {
			continue
		}
		frame, info = withTag(frame, info)
		info.InterfaceIndex = t.number
		if !r.write(info, frame) {
			stop()
			return
		}
	}
}

// comesBack waits, after the kernel said ENETDOWN, until the interface is up again; false means that it is gone. The
// kernel says so once, before the interface goes for good, and nothing when it has gone.
func (t *tap) comesBack(ctx context.Context) bool {
	for {
		var link *net.Interface
		err := netns.Do(netns.Path(t.pid), func() (err error) {
			link, err = net.InterfaceByIndex(t.index)
			return err
		})
		if err != nil || link.Flags&net.FlagUp != 0 {
			return err == nil && ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(downPoll):
		}
	}
}

// downPoll is how often an interface that is down is looked at.
const downPoll = 50 * time.Millisecond

// write adds a frame; false means that no more are wanted.
func (r *recorder) write(info gopacket.CaptureInfo, frame []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 || r.err != nil {
		return false
	}
	err := r.out.WritePacket(info, frame)
	if err == nil {
		err = r.out.Flush()
	}
	if err != nil {
		if !errors.Is(err, unix.EPIPE) && !errors.Is(err, io.ErrClosedPipe) { // the reader has seen enough
			r.err = fmt.Errorf("write frame: %w", err)
		}
		return false
	}
	if r.left > 0 {
		r.left--
	}
	return r.left != 0
}

// withTag puts a VLAN tag back into the frame: the kernel takes it out before packet sockets see it. Only the VLAN id
// survives, for the library passes no more on.
func withTag(frame []byte, info gopacket.CaptureInfo) ([]byte, gopacket.CaptureInfo) {
	const addresses, tag = 12, 4
	if len(info.AncillaryData) == 0 || len(frame) < addresses {
		return frame, info
	}
	vlan, ok := info.AncillaryData[0].(int)
	if !ok {
		return frame, info
	}
	tagged := slices.Clone(frame[:addresses])
	tagged = binary.BigEndian.AppendUint16(tagged, uint16(layers.EthernetTypeDot1Q))
	tagged = binary.BigEndian.AppendUint16(tagged, uint16(vlan))
	tagged = append(tagged, frame[addresses:]...)
	info.CaptureLength += tag
	info.Length += tag
	return tagged, info
}

// waitExit returns when the process has ended, or ctx.
func waitExit(ctx context.Context, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone already
	}
	defer func() { _ = unix.Close(fd) }()
	const patience = 100 // ms: how late the end of ctx is noticed
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
