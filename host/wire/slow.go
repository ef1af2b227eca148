package wire

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/kernel/tap"
	"github.com/pergola-net/pergola/model/slice"
)

// ErrNoSlowPath means that frames of a node are not for a process.
var ErrNoSlowPath = errors.New("the node's slow path is no socket")

var slowPaths = map[slice.SlowPath]node.SlowPath{
	"": node.SlowInterface, slice.SlowInterface: node.SlowInterface,
	slice.SlowSocket: node.SlowSocket, slice.SlowNone: node.SlowNone,
}

const (
	slowQueue = 500   // frames that wait to be read; what comes then is lost
	slowMTU   = 65521 // the longest that a tap device takes: 65535, with the Ethernet header
)

// OpenSlowPath gives the file by which a process reads the frames that a packet program punts, and writes frames
// (pergola/slow.h). owner is the node, for people. There is one at a time: the error is tap.ErrBusy where another
// process has it, and ErrNoSlowPath where the node's slow path is another one. The caller closes it.
//
// The file is that of a tap device in the substrate's namespace. Its index says whose it is, so the device is made
// and deleted while no node gets another's number.
func (s *HostNetwork) OpenSlowPath(ctx context.Context, name, owner string) (_ *os.File, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.tapping.Lock()
	defer s.tapping.Unlock()
	index, ok, err := s.programs.Tap(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("open the slow path of %s: %w", owner, ErrNoSlowPath)
	}
	err = s.noteHanded(name, index)
	var f *os.File
	if err == nil {
		f, err = s.openTap(index, owner)
	}
	if err != nil {
		return nil, fmt.Errorf("open the slow path of %s: %w", owner, err)
	}
	return f, nil
}

// noteHanded notes how many frames had been handed to a slow path before its device is made; one that is there counts
// from when it was made.
func (s *HostNetwork) noteHanded(name string, index int) error {
	if _, err := s.nl.deviceAt(index); !errors.Is(err, ErrNoDevice) {
		return err
	}
	counters, err := s.programs.Counters(name)
	if err != nil {
		return err
	}
	return s.setHanded(index, counters[slowHanded])
}

func (s *HostNetwork) setHanded(index int, frames uint64) error {
	return errors.Join(s.data.SetNote(datapath.NoteSlow, index, uint32(frames)),
		s.data.SetNote(datapath.NoteSlowHigh, index, uint32(frames>>32)))
}

// handedBefore is what noteHanded noted.
func (s *HostNetwork) handedBefore(index int) (uint64, error) {
	low, err := s.data.Note(datapath.NoteSlow, index)
	if err != nil {
		return 0, err
	}
	high, err := s.data.Note(datapath.NoteSlowHigh, index)
	return uint64(high)<<32 | uint64(low), err
}

func (s *HostNetwork) openTap(index int, owner string) (f *os.File, err error) {
	m, err := newMark(roleSlow, owner, "")
	if err != nil {
		return nil, err
	}
	err = netns.In(s.ns, func() error {
		if f, err = tap.Open(tapName(index), index); err != nil {
			return err
		}
		return s.data.Attach(index)
	})
	if err == nil {
		err = s.nl.changeUp(index, true, rtnl.U32(unix.IFLA_MTU, slowMTU),
			rtnl.U32(unix.IFLA_TXQLEN, slowQueue), rtnl.String(unix.IFLA_IFALIAS, m.String()))
	}
	if err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

func tapName(index int) string { return fmt.Sprintf("slow%d", index-node.FirstTap) }

// setProgram makes a program run. The tap device of a node that had its number before is no node's any more.
func (s *HostNetwork) setProgram(name string, w node.Node) error {
	s.tapping.Lock()
	defer s.tapping.Unlock()
	_, _, before := s.programs.Tap(name)
	err := s.programs.Set(name, w)
	var tidy *node.TidyError // the node is as w says, too
	if before == nil || err != nil && !errors.As(err, &tidy) {
		return err
	}
	return errors.Join(err, s.deleteTap(name))
}

// deleteProgram deletes a program and its tap device: a process that has it gets an error.
func (s *HostNetwork) deleteProgram(name string) error {
	s.tapping.Lock()
	defer s.tapping.Unlock()
	if err := s.deleteTap(name); err != nil {
		return err
	}
	return s.programs.Delete(name)
}

// deleteTap deletes the tap device of a program, if the program runs and there is one.
func (s *HostNetwork) deleteTap(name string) error {
	index, _, err := s.programs.Tap(name)
	if err != nil {
		return nil //nolint:nilerr // half made: the next program with its number deletes it
	}
	d, err := s.nl.deviceAt(index)
	switch {
	case err == nil:
		err = s.nl.deleteDevices([]device{d})
	case errors.Is(err, ErrNoDevice):
		err = nil
	}
	if err = errors.Join(err, s.setHanded(index, 0)); err != nil {
		return fmt.Errorf("delete the slow path of %s: %w", name, err)
	}
	return nil
}

// slowHanded is the counter of frames that were handed to a slow path.
const slowHanded = "slow path handed"

// countSlowPath adds what the process has not read of what was handed to it: it waits, or was lost. Where the device
// was made anew, it is what was handed since then.
func (s *HostNetwork) countSlowPath(name string, counters map[string]uint64) error {
	index, _, err := s.programs.Tap(name)
	if err != nil {
		return err
	}
	d, err := s.nl.statsAt(index)
	if err != nil && !errors.Is(err, ErrNoDevice) {
		return fmt.Errorf("count frames of the slow path of %s: %w", name, err)
	}
	before, err := s.handedBefore(index)
	if err != nil {
		return fmt.Errorf("count frames of the slow path of %s: %w", name, err)
	}
	handed := counters[slowHanded]
	counters["slow path unread"] = handed - min(handed, before+d.tx.Frames)
	return nil
}
