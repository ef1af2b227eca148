package sliver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Bounds of the logs of slices that are gone: how long they stay after the last line, and how many bytes they may have
// together. The ones that were written last stay longest.
const (
	oldLogsAge   = 7 * 24 * time.Hour
	oldLogsBytes = 256 << 20
)

// oldLogsEvery is how often they are looked at.
const oldLogsEvery = time.Hour

// ownerFile is in each directory of logs, and says by whose state directory they are: no others are removed.
const ownerFile = ".owner"

func (r *Runtime) makeLogDir(sliceName string) error {
	dir := filepath.Join(r.cfg.LogDir, sliceName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, ownerFile), []byte(r.cfg.StateDir))
}

// ownsLogs reports whether logs are of a slice of this server.
func (r *Runtime) ownsLogs(dir string) bool {
	owner, err := os.ReadFile(filepath.Join(dir, ownerFile))
	return err == nil && string(owner) == r.cfg.StateDir
}

// sliceLogs are the logs of one slice.
type sliceLogs struct {
	dir     string
	bytes   int64
	written time.Time // the last one
}

// dropOldLogs removes logs of this server's slices that are gone, as far as they exceed the bounds.
func (r *Runtime) dropOldLogs(now time.Time) error {
	ids, err := r.Slices()
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, id := range ids {
		name, err := r.sliceName(id)
		if errors.Is(err, ErrNoSlice) { // it is being made, so its directory is new; or it is half deleted
			continue
		}
		if err != nil {
			return fmt.Errorf("drop old logs: %w", err) // all stay: it is not known whose they are
		}
		here[name] = true
	}
	entries, err := os.ReadDir(r.cfg.LogDir)
	if err != nil {
		return fmt.Errorf("drop old logs: %w", err)
	}
	var old []sliceLogs
	for _, e := range entries {
		dir := filepath.Join(r.cfg.LogDir, e.Name())
		if e.IsDir() && !here[e.Name()] && r.ownsLogs(dir) {
			old = append(old, readLogs(dir))
		}
	}
	slices.SortFunc(old, func(a, b sliceLogs) int { return b.written.Compare(a.written) })
	var kept int64
	for _, l := range old {
		kept += l.bytes
		if kept <= oldLogsBytes && now.Sub(l.written) <= oldLogsAge {
			continue
		}
		if err := os.RemoveAll(l.dir); err != nil {
			return fmt.Errorf("drop old logs: %w", err)
		}
	}
	return nil
}

func readLogs(dir string) sliceLogs {
	all := sliceLogs{dir: dir}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read does not count
		}
		fi, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		if fi.ModTime().After(all.written) {
			all.written = fi.ModTime()
		}
		if fi.Mode().IsRegular() {
			all.bytes += fi.Size()
		}
		return nil
	})
	return all
}
