// Package signs tells at once of what happens in network namespaces and the kernel announces nowhere: a packet socket
// is opened, a parameter of the network is written. What it tells of may not have taken effect yet: it does so within
// moments, unless it fails. And not all of it is told: another process may do it on behalf of the namespace, or the
// kernel may lack the hooks. So a sign says when to look, and nothing else.
package signs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/cgroups"
	"github.com/pergola-net/pergola/kernel/netns"
)

var byteOrder = binary.NativeEndian

// Sign is that something happens in a namespace.
type Sign struct {
	Sysctl string // that a process writes, as net/ipv4/ip_forward; empty: it opens a packet socket
}

// Signs hears of what happens in the namespaces that are watched.
type Signs struct {
	object objectObjects
	links  []link.Link
	events *ringbuf.Reader
	done   chan struct{}

	mu      sync.Mutex // guards what follows; held while watchers are told
	watches map[uint32]map[*watch]bool
}

// enum watch_kind of bpf/signs.c.
const (
	watchTell  uint8 = 1
	watchLearn uint8 = 2
)

type watch struct{ tell func(Sign) }

// Open begins to hear. The error names what is not heard, or what is heard too often; nil, if nothing is heard at all.
func Open() (*Signs, error) {
	s := &Signs{done: make(chan struct{}), watches: map[uint32]map[*watch]bool{}}
	if err := loadObjectObjects(&s.object, nil); err != nil {
		return nil, fmt.Errorf("hear of packet sockets and sysctls: %w", err)
	}
	sockets, err1 := link.AttachRawTracepoint(link.RawTracepointOptions{
		Name: "percpu_alloc_percpu", Program: s.object.PacketOpened,
	})
	if err1 != nil {
		err1 = fmt.Errorf("hear of packet sockets: %w", err1)
	} else {
		s.links = append(s.links, sockets)
		err1 = s.learnPacketSite()
	}
	sysctls, err2 := attachToCgroups(s.object.SysctlWritten)
	if err2 != nil {
		err2 = fmt.Errorf("hear of sysctls: %w", err2)
	} else {
		s.links = append(s.links, sysctls)
	}
	var err3 error
	if len(s.links) > 0 {
		s.events, err3 = ringbuf.NewReader(s.object.Signs)
	}
	if s.events == nil {
		return nil, errors.Join(err1, err2, err3, s.close())
	}
	go s.run()
	return s, errors.Join(err1, err2)
}

// learnPacketSite opens a packet socket in a namespace that has nothing else, so that its call site in the kernel is
// known. Without it, everything that allocates as packet sockets do is told of.
func (s *Signs) learnPacketSite() error {
	err := netns.New(func() error {
		var st unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			return err
		}
		inode := uint32(st.Ino)
		if err := s.object.Watched.Put(inode, watchLearn); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return errors.Join(err, s.object.Watched.Delete(inode))
	})
	var site uint64
	if err == nil {
		err = s.object.PacketSite.Get(&site)
	}
	if err == nil && site == 0 {
		err = errors.New("none was seen")
	}
	if err != nil {
		return fmt.Errorf("learn what a packet socket allocates: %w", err)
	}
	return nil
}

// attachToCgroups attaches the program to all processes of the machine.
func attachToCgroups(p *ebpf.Program) (link.Link, error) {
	root, err := cgroups.Root()
	if err != nil {
		return nil, err
	}
	return link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupSysctl, Program: p})
}

// Watch has tell called at each sign from a namespace until stop is called. tell must not wait, nor call the methods
// of Signs; when stop has returned it is not called any more. No Signs (nil) tells nothing.
func (s *Signs) Watch(netns *os.File, tell func(Sign)) (stop func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(netns.Fd()), &st); err != nil {
		return nil, fmt.Errorf("watch %s: %w", netns.Name(), err)
	}
	inode, w := uint32(st.Ino), &watch{tell}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[inode] == nil {
		if err := s.object.Watched.Put(inode, watchTell); err != nil {
			return nil, fmt.Errorf("watch %s: %w", netns.Name(), err)
		}
		s.watches[inode] = map[*watch]bool{}
	}
	s.watches[inode][w] = true
	return func() { s.forget(inode, w) }, nil
}

func (s *Signs) forget(inode uint32, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches[inode], w)
	if len(s.watches[inode]) == 0 {
		delete(s.watches, inode)
		_ = s.object.Watched.Delete(inode) // whatever fails: nobody is told
	}
}

func (s *Signs) run() {
	defer close(s.done)
	var record ringbuf.Record
	for {
		if err := s.events.ReadInto(&record); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			continue
		}
		if len(record.RawSample) < 4 {
			continue
		}
		inode := byteOrder.Uint32(record.RawSample)
		sign := Sign{Sysctl: unix.ByteSliceToString(record.RawSample[4:])}
		s.mu.Lock()
		for w := range s.watches[inode] {
			w.tell(sign)
		}
		s.mu.Unlock()
	}
}

// Close ends all hearing.
func (s *Signs) Close() error {
	if s == nil {
		return nil
	}
	err := s.events.Close()
	<-s.done
	return errors.Join(err, s.close())
}

func (s *Signs) close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, s.object.Close())...)
}
