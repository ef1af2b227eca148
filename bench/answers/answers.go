// Package answers measures how soon what controls a host answers while data floods it: the API, the control sockets of
// slivers, and the leases of a cluster.
package answers

import (
	_ "embed" // Program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/sdk/message"
)

// Program is the C code of a node that sends datagrams on, and punts those to addresses that end in 9.
//
//go:embed program/sorter.c
var Program []byte

// Socket is a connection to the control socket of a sliver.
type Socket struct {
	conn *net.UnixConn
	last uint64
}

// Dial connects to the socket of a sliver, by its first process. The agent takes the caller for the sliver.
func Dial(pid int) (*Socket, error) {
	path := fmt.Sprintf("/proc/%d/root%s", pid, message.Path)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("connect to a sliver's control socket: %w", err)
	}
	return &Socket{conn: conn}, nil
}

// Ask makes a request, and waits for its answer. fd is -1 where none came.
func (s *Socket) Ask(do string) (fd int, err error) {
	s.last++
	request, err := json.Marshal(message.Request{ID: s.last, Do: do})
	if err != nil {
		return -1, err
	}
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return -1, err
	}
	if _, err := s.conn.Write(request); err != nil {
		return -1, fmt.Errorf("ask a sliver's socket for %s: %w", do, err)
	}
	data, rights := make([]byte, message.MaxSize), make([]byte, unix.CmsgSpace(4))
	n, more, _, _, err := s.conn.ReadMsgUnix(data, rights)
	if err != nil {
		return -1, fmt.Errorf("ask a sliver's socket for %s: %w", do, err)
	}
	var answer struct {
		ID    uint64
		Error string
	}
	if err := json.Unmarshal(data[:n], &answer); err != nil {
		return -1, fmt.Errorf("ask a sliver's socket for %s: %w", do, err)
	}
	if answer.Error != "" || answer.ID != s.last {
		return -1, fmt.Errorf("ask a sliver's socket for %s: the answer is %q, to request %d of %d", do,
			answer.Error, answer.ID, s.last)
	}
	return received(rights[:more])
}

// patience is how long an answer may take; more is an error.
const patience = 30 * time.Second

// received is the file descriptor that came with a message, or -1.
func received(rights []byte) (fd int, err error) {
	if len(rights) == 0 {
		return -1, nil
	}
	all, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(all) != 1 {
		return -1, errors.Join(errors.New("a message of a control socket has no file descriptor"), err)
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(errors.New("a message of a control socket has no file descriptor"), err)
	}
	return fds[0], nil
}

// Close ends the connection.
func (s *Socket) Close() error { return s.conn.Close() }

// Reader reads the frames that a packet program punts, as a slow path does, and counts them.
type Reader struct {
	file   *os.File
	frames atomic.Int64
	ended  chan error
}

// Read takes the slow path of the sliver.
func (s *Socket) Read() (*Reader, error) {
	fd, err := s.Ask(message.DoSlowPath)
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, errors.New("the slow path of a sliver came without its file descriptor")
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Close ends a read
		return nil, err
	}
	r := &Reader{file: os.NewFile(uintptr(fd), "slow path"), ended: make(chan error, 1)}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			if _, err := r.file.Read(buffer); err != nil {
				if errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) {
					err = nil
				}
				r.ended <- err
				return
			}
			r.frames.Add(1)
		}
	}()
	return r, nil
}

// Frames is how many came.
func (r *Reader) Frames() int { return int(r.frames.Load()) }

// Close gives the slow path back.
func (r *Reader) Close() error { return errors.Join(r.file.Close(), <-r.ended) }

// Time asks so often, with a pause before each time, and gives the milliseconds that each answer took.
func Time(times int, pause time.Duration, ask func() error) (took []float64, err error) {
	for range times {
		time.Sleep(pause)
		began := time.Now()
		if err := ask(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds()*1e3)
	}
	return took, nil
}

// Leases follows when hosts renew their leases: each writes down, by the clock that all processes have, until when its
// lease holds.
type Leases struct {
	files map[string]string // by host
	ttl   time.Duration
}

// FollowLeases is of hosts by their state directories, whose leases last so long.
func FollowLeases(stateDirs map[string]string, ttl time.Duration) *Leases {
	l := &Leases{files: map[string]string{}, ttl: ttl}
	for host, dir := range stateDirs {
		l.files[host] = dir + "/fence/until"
	}
	return l
}

// Renewals is when leases were renewed.
type Renewals struct {
	Apart   []time.Duration // between two renewals of a lease, of all hosts
	Longest time.Duration   // for which a lease was not renewed, also at the end
}

// Follow follows for so long, or until done is closed.
func (l *Leases) Follow(long time.Duration, done <-chan struct{}) (r Renewals, err error) {
	last := map[string]time.Duration{}
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for began := uptime(); uptime()-began < long; {
		if err := l.look(&r, last); err != nil {
			return r, err
		}
		select {
		case <-done:
			return r, nil
		case <-next.C:
		}
	}
	return r, nil
}

// look reads until when all leases hold; last is what it read before.
func (l *Leases) look(r *Renewals, last map[string]time.Duration) error {
	for host, file := range l.files {
		until, err := read(file)
		if err != nil {
			return fmt.Errorf("read until when the lease of %s holds: %w", host, err)
		}
		if before, known := last[host]; known && before != until {
			r.Apart = append(r.Apart, until-before)
			r.Longest = max(r.Longest, until-before)
		}
		last[host] = until
		r.Longest = max(r.Longest, uptime()-(until-l.ttl))
	}
	return nil
}

func read(file string) (time.Duration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(n), err
}

// uptime is CLOCK_BOOTTIME, as the hosts count.
func uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails only where the pointer is wrong
	return time.Duration(t.Nano())
}
