package sliver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// LogPath gives the file with the output of a node's first process. It outlives the sliver.
func (r *Runtime) LogPath(sliceName, node string) string {
	return filepath.Join(r.cfg.LogDir, sliceName, node+".log")
}

// Log gives LogPath of a sliver whose slice is on this machine, else an empty path.
func (r *Runtime) Log(id ID) string {
	name, err := r.logPath(id)
	if err != nil {
		return ""
	}
	return name
}

func (r *Runtime) logPath(id ID) (string, error) {
	name, err := r.sliceName(id.Slice)
	if err != nil {
		return "", err
	}
	return r.LogPath(name, id.Node), nil
}

// Bounds of the interval between two checks of the logs. A sliver writes to its log directly: that costs nothing and
// goes on without a server, but a log can grow until the next check. So the interval is shorter where one grows fast.
const (
	trimSeldom = time.Second
	trimOften  = 20 * time.Millisecond
)

// trimLogs keeps logs within bounds, as long as the server runs.
func (r *Runtime) trimLogs(ctx context.Context) {
	old := time.NewTicker(oldLogsEvery)
	defer old.Stop()
	_ = r.dropOldLogs(time.Now()) // retried later, as below
	for pause := trimSeldom; ; {
		select {
		case <-old.C:
			_ = r.dropOldLogs(time.Now())
			continue
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = nextTrim(pause, r.trimAll(), r.cfg.LogBytes)
	}
}

// trimAll cuts logs that are too long, and gives the size of the longest one before that.
func (r *Runtime) trimAll() (longest int64) {
	logs, _ := filepath.Glob(filepath.Join(r.cfg.LogDir, "*", "*.log")) // the pattern is well formed
	for _, name := range logs {
		fi, err := os.Lstat(name)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		longest = max(longest, fi.Size())
		if fi.Size() > r.cfg.LogBytes {
			_ = trimLog(name, r.cfg.LogBytes/2) // retried at the next check
		}
	}
	return longest
}

// nextTrim gives the next interval. The longest log grew to its size within the last one, at most; at that speed it
// reaches its bound when the next one ends.
func nextTrim(pause time.Duration, longest, bound int64) time.Duration {
	if longest <= bound {
		return min(2*pause, trimSeldom)
	}
	return max(time.Duration(float64(pause)*float64(bound)/float64(longest)), trimOften)
}

// trimLog keeps the end of a log as NAME.1 and empties the log, even if the copy fails: on a full disk that frees
// space. The writer's descriptor appends, so it continues at the new end; lines that it writes meanwhile are lost.
func trimLog(name string, keep int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	defer f.Close()
	err = keepEnd(f, name+".1", keep)
	if err != nil {
		err = fmt.Errorf("keep the end of log %s: %w", name, errors.Join(err, os.Remove(name+".1")))
	}
	return errors.Join(err, f.Truncate(0))
}

func keepEnd(f *os.File, name string, keep int64) error {
	if _, err := f.Seek(-keep, io.SeekEnd); err != nil {
		return err
	}
	old, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer old.Close()
	if _, err := io.CopyN(old, f, keep); err != nil {
		return err
	}
	return old.Close()
}
