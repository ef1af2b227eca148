package sliver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// EndMarked ends the processes of all slivers below a state directory that have a note, and gives the number of slivers
// that had processes. It needs no Runtime and removes nothing else: the Runtime of another process finds the rest as
// after a crash.
func EndMarked(stateDir, note string) (ended int, err error) {
	marked, err := markedSlivers(stateDir, note)
	errs := []error{err}
	for _, rec := range marked {
		if err := rec.Process.kill(); err != nil {
			errs = append(errs, err)
		} else {
			ended++
		}
	}
	return ended, errors.Join(errs...)
}

// HasMarked reports whether a sliver below a state directory that has a note has processes.
func HasMarked(stateDir, note string) (bool, error) {
	marked, err := markedSlivers(stateDir, note)
	return len(marked) > 0, err
}

// markedSlivers reads the records of slivers that run. One that cannot be read is an error, but the others are given
// too. The first process is that of a PID namespace: no other one outlives it.
func markedSlivers(stateDir, note string) (all []record, err error) {
	files, err := filepath.Glob(filepath.Join(stateDir, "slices", "*", "nodes", "*", "sliver.json"))
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted meanwhile
		}
		var rec record
		if err == nil {
			err = json.Unmarshal(data, &rec)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read record of a node %s: %w", file, err))
		case rec.Notes[note] != "" && rec.Process.alive():
			all = append(all, rec)
		}
	}
	return all, errors.Join(errs...)
}

// kill kills the process, if it is there.
func (p process) kill() error {
	fd, err := p.open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return nil
}
