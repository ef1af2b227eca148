package wire

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// namespaceOf gives the number that a namespace has in the connection's (rtnetlink(7), RTM_GETNSID): that of a file of
// the namespace (unix.NETNSA_FD), or of a process in it (unix.NETNSA_PID). It is sameNS for a namespace without a
// number, and for a process that has ended.
func (c *conn) namespaceOf(by uint16, id uint32) (number int, err error) {
	found, err := c.Get(unix.RTM_GETNSID, make([]byte, unix.SizeofRtGenmsg), rtnl.U32(by, id))
	if errors.Is(err, unix.ESRCH) {
		return sameNS, nil
	}
	if err != nil {
		return sameNS, fmt.Errorf("ask for the number of a namespace: %w", err)
	}
	number = sameNS
	attrs := rtnl.Message{Data: found}.Attributes(rtnl.Align(unix.SizeofRtGenmsg))
	for attrs.Next() {
		if attrs.Kind == unix.NETNSA_NSID {
			number = int(int32(attrs.U32()))
		}
	}
	return number, attrs.Err()
}

// inside calls f in the namespace of a port's other end, if that still exists.
func (s *HostNetwork) inside(port device, f func(*conn) error) error {
	if port.mark.role != rolePort {
		return nil
	}
	pid, err := s.forwarder.Note(datapath.NoteProcess, port.index)
	if err != nil {
		return err
	}
	ns := s.host // there is no process: it is an uplink of a slice
	if pid != 0 {
		ns, err = netns.Open(netns.Path(int(pid)))
		if errors.Is(err, netns.ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
	}
	if is, err := s.isIn(port, ns); err != nil || !is {
		return err
	}
	c, err := dial(ns)
	if err != nil {
		return err
	}
	defer c.close()
	return f(c)
}

// isIn reports whether a device's other end is in a namespace.
func (s *HostNetwork) isIn(d device, ns *os.File) (bool, error) {
	number, err := s.nl.namespaceOf(unix.NETNSA_FD, uint32(ns.Fd()))
	return number != sameNS && number == d.peerNS, err
}

// adopt takes over devices of an earlier version: what their marks say besides is noted, and then the marks become
// those of today. Traffic is not disturbed.
func (s *HostNetwork) adopt() error {
	all, err := s.nl.devices()
	if err != nil {
		return err
	}
	for _, d := range all {
		if !d.marked || d.was == nil {
			continue
		}
		if err := s.note(d); err != nil {
			return fmt.Errorf("adopt device %s: %w", d.name, err)
		}
		err := ignoreGone(s.nl.change(d.index, rtnl.String(unix.IFLA_IFALIAS, d.mark.String())))
		if err != nil {
			return fmt.Errorf("adopt device %s: %w", d.name, err)
		}
	}
	return nil
}

func (s *HostNetwork) note(d device) error {
	var errs []error
	if d.was.pid != 0 {
		errs = append(errs, s.forwarder.SetNote(datapath.NoteProcess, d.index, uint32(d.was.pid)))
	}
	for _, nic := range d.was.nics {
		errs = append(errs, s.forwarder.SetNote(datapath.NoteNIC, nic, 1))
	}
	if d.was.raised {
		errs = append(errs, s.forwarder.SetNote(datapath.NoteForwarding, 0, 1))
	}
	return errors.Join(errs...)
}
