package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/api"
)

// Logs writes what a node's first process printed, also that of one that has ended.
func (s *Server) Logs(ctx context.Context, name, node string, opt api.LogOptions, w io.Writer) error {
	return tail(ctx, s.machine.Runtime.LogPath(name, node), opt.Tail, opt.Follow, w)
}

// tail writes the last lines of a file (0: all of it), and with follow what is added to it until ctx ends. The file may
// be emptied, replaced or not be there yet.
func tail(ctx context.Context, path string, lines int, follow bool, w io.Writer) error {
	news, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	notices := os.NewFile(uintptr(news), "inotify")
	defer func() { _ = notices.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = notices.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	r := tailer{path: path, w: w}
	defer r.close()
	const changes = unix.IN_MODIFY | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	r.watch = func() { _, _ = unix.InotifyAddWatch(news, path, changes) }
	if err := r.open(lines); err != nil || !follow {
		return err
	}
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		// A file that is not there cannot be watched: look again now and then.
		_ = notices.SetReadDeadline(time.Now().Add(time.Second))
		if ctx.Err() != nil {
			return nil
		}
		if _, err := notices.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if err := r.more(); err != nil {
			return err
		}
	}
	return nil
}

// tailer copies a file that grows.
type tailer struct {
	path  string
	w     io.Writer
	watch func()
	f     *os.File
	at    int64
}

func (r *tailer) close() {
	if r.f != nil {
		_ = r.f.Close()
	}
}

// open opens the file, if it is there, and copies its last lines.
func (r *tailer) open(lines int) error {
	f, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.f = f
	r.watch()
	if lines > 0 {
		if r.at, err = lastLines(f, lines); err != nil {
			return err
		}
	}
	return r.copy()
}

func (r *tailer) copy() error {
	if _, err := r.f.Seek(r.at, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(r.w, r.f)
	r.at += n
	return err
}

// more copies what is new, from the beginning where the file was emptied or replaced.
func (r *tailer) more() error {
	if r.f == nil {
		return r.open(0)
	}
	now, err := os.Stat(r.path)
	if err != nil {
		return nil // gone: perhaps it returns
	}
	if held, err := r.f.Stat(); err == nil && !os.SameFile(now, held) {
		r.close()
		r.f, r.at = nil, 0
		return r.open(0)
	}
	if now.Size() < r.at {
		r.at = 0
	}
	return r.copy()
}

// lastLines finds where the last lines of a file begin.
func lastLines(f *os.File, lines int) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const block = 32 << 10
	buf := make([]byte, block)
	end := st.Size()
	for at := end; at > 0; {
		n := min(at, block)
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return 0, err
		}
		for chunk := buf[:n]; ; {
			i := bytes.LastIndexByte(chunk, '\n')
			if i < 0 {
				break
			}
			if at+int64(i)+1 < end { // the last byte of the file ends a line, it does not begin one
				if lines--; lines == 0 {
					return at + int64(i) + 1, nil
				}
			}
			chunk = chunk[:i]
		}
	}
	return 0, nil
}
