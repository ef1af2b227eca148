package sliver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// LogPath gives the file that takes what the first process of a node prints. It outlives the sliver.
func (r *Runtime) LogPath(sliceName, node string) string {
	return filepath.Join(r.cfg.LogDir, sliceName, node+".log")
}

// Log gives LogPath of a sliver whose slice is on this machine, else nothing.
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

// trimLogs keeps logs within bounds, as long as the server runs: a sliver writes to its log without us.
func (r *Runtime) trimLogs(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		logs, _ := filepath.Glob(filepath.Join(r.cfg.LogDir, "*", "*.log")) // the pattern is well formed
		for _, name := range logs {
			if fi, err := os.Lstat(name); err == nil && fi.Mode().IsRegular() && fi.Size() > r.cfg.LogBytes {
				_ = trimLog(name, r.cfg.LogBytes/2) // what cannot be trimmed now is tried again
			}
		}
	}
}

// trimLog keeps the end of a log under the name NAME.1 and empties it. The writer's descriptor appends, so it
// goes on at the new end; lines that it writes meanwhile are lost.
func trimLog(name string, keep int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(-keep, io.SeekEnd); err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	old, err := os.OpenFile(name+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	defer old.Close()
	if _, err := io.CopyN(old, f, keep); err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	return f.Truncate(0)
}
