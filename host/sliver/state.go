package sliver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/renameio/v2"
)

// The state directory holds slices/ID for each slice, on a tmpfs, so that no record survives a reboot:
//
//	slice.json        name of the slice
//	hosts             /etc/hosts of its nodes
//	oci/              the runtime's own state
//	nodes/NODE/       record, OCI bundle, messages of the runtime
//	sockets/NODE/     control socket, which the node sees in /run/pergola
//	fs/               tmpfs: what the nodes write, a directory each; and the mask of the machine's /etc
//
// The second tmpfs is a separate one because slivers can fill it.

func (r *Runtime) slicesDir() string { return filepath.Join(r.cfg.StateDir, "slices") }
func (r *Runtime) sliceDir(id uint16) string {
	return filepath.Join(r.slicesDir(), strconv.Itoa(int(id)))
}
func (r *Runtime) ociDir(id uint16) string { return filepath.Join(r.sliceDir(id), "oci") }
func (r *Runtime) fsDir(id uint16) string  { return filepath.Join(r.sliceDir(id), "fs") }
func (r *Runtime) nodeDir(id ID) string    { return filepath.Join(r.sliceDir(id.Slice), "nodes", id.Node) }
func (r *Runtime) socketDir(id ID) string {
	return filepath.Join(r.sliceDir(id.Slice), "sockets", id.Node)
}
func (r *Runtime) filesDir(id ID) string   { return filepath.Join(r.fsDir(id.Slice), "nodes", id.Node) }
func (r *Runtime) recordPath(id ID) string { return filepath.Join(r.nodeDir(id), "sliver.json") }

// record is the record of a sliver in the state directory. It is made before, and removed after, everything else of the
// sliver.
type record struct {
	SliceName string            `json:"slice_name"`
	Digest    string            `json:"digest"`
	Process   process           `json:"process,omitzero"` // zero: not made to the end
	Plain     bool              `json:"plain,omitempty"`  // has no command: its first process holds the namespaces
	Command   []string          `json:"command,omitempty"`
	Env       []string          `json:"env,omitempty"`
	CapAdd    []string          `json:"cap_add,omitempty"`
	Dir       string            `json:"dir,omitempty"`
	Sysctls   map[string]string `json:"sysctls,omitempty"` // of interfaces: set by Start, when these are there
	Created   time.Time         `json:"created,omitzero"`
	Started   time.Time         `json:"started,omitzero"`
	Exit      *exit             `json:"exit,omitempty"`
	Notes     map[string]string `json:"notes,omitempty"`
}

type exit struct {
	Code int       `json:"code"` // -1: not known
	Time time.Time `json:"time"`
}

func (r *Runtime) readRecord(id ID) (*record, error) {
	data, err := os.ReadFile(r.recordPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("node %s: %w", id.Node, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read record of node %s: %w", id.Node, err)
	}
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("read record of node %s: %w", id.Node, err)
	}
	return rec, nil
}

func (r *Runtime) writeRecord(id ID, rec *record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write record of node %s: %w", id.Node, err)
	}
	if err := replaceFile(r.recordPath(id), data); err != nil {
		return fmt.Errorf("write record of node %s: %w", id.Node, err)
	}
	return nil
}

// editRecord changes the record of an existing sliver.
func (r *Runtime) editRecord(id ID, edit func(*record)) error {
	defer r.lock(id)()
	rec, err := r.readRecord(id)
	if err != nil {
		return err
	}
	edit(rec)
	return r.writeRecord(id, rec)
}

// replaceFile writes a file atomically: a reader, also after a crash, finds the old content or the new one.
func replaceFile(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

// Note keeps a short text with a sliver until the sliver is deleted. An empty value removes the note.
func (r *Runtime) Note(id ID, key, value string) error {
	return r.editRecord(id, func(rec *record) {
		if value == "" {
			delete(rec.Notes, key)
			return
		}
		if rec.Notes == nil {
			rec.Notes = map[string]string{}
		}
		rec.Notes[key] = value
	})
}

// Slices gives the slices that have anything on this machine.
func (r *Runtime) Slices() ([]uint16, error) {
	entries, err := os.ReadDir(r.slicesDir())
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	names, err := r.groups.children(r.groupRoot())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	var ids []uint16
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 16); err == nil && !slices.Contains(ids, uint16(n)) {
			ids = append(ids, uint16(n))
		}
	}
	return ids, nil
}

// slivers gives every sliver with a state directory, of whatever state.
func (r *Runtime) slivers() ([]ID, error) {
	all, err := r.Slices()
	if err != nil {
		return nil, err
	}
	var ids []ID
	for _, s := range all {
		of, err := r.sliversOf(s)
		if err != nil {
			return nil, err
		}
		ids = append(ids, of...)
	}
	return ids, nil
}

func (r *Runtime) sliversOf(slice uint16) ([]ID, error) {
	entries, err := os.ReadDir(filepath.Join(r.sliceDir(slice), "nodes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list nodes of network %d: %w", slice, err)
	}
	ids := make([]ID, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, ID{slice, e.Name()})
	}
	return ids, nil
}

// List gives every sliver on this machine, half-made ones included. It runs no program: a thousand slivers take some
// tens of milliseconds.
func (r *Runtime) List() ([]Observed, error) {
	ids, err := r.slivers()
	if err != nil {
		return nil, err
	}
	all := make([]Observed, 0, len(ids))
	for _, id := range ids {
		o, err := r.Observe(id)
		if errors.Is(err, ErrNotFound) && !exists(r.nodeDir(id)) {
			continue // deleted meanwhile
		}
		all = append(all, o)
	}
	return all, nil
}

// Observe gives the present state of one sliver.
func (r *Runtime) Observe(id ID) (Observed, error) {
	o := Observed{ID: id, State: Broken}
	rec, err := r.readRecord(id)
	if err != nil {
		return o, err
	}
	ended := rec.Process.PID != 0 && !rec.Process.alive()
	if ended && rec.Exit == nil {
		// An end that is watched counts once it is known how it came: Exits tells of it then.
		if ended = !r.watch.watches(rec.Process.PID); ended {
			if rec, err = r.readRecord(id); err != nil { // that it was written meanwhile
				return o, err
			}
			ended = !rec.Process.alive()
		}
	}
	o.SliceName, o.Digest, o.Notes = rec.SliceName, rec.Digest, rec.Notes
	o.CreatedAt, o.StartedAt = rec.Created, rec.Started
	switch {
	case rec.Process.PID == 0:
	case ended:
		o.State, o.ExitCode = Exited, -1
		o.OutOfMemory = r.groups.outOfMemory(r.groupOf(id))
		if rec.Exit != nil {
			o.ExitCode, o.ExitedAt = rec.Exit.Code, rec.Exit.Time
		}
	default:
		o.PID = rec.Process.PID
		o.State = Created
		if !rec.Started.IsZero() {
			o.State = Running
		}
		if r.groups.frozen(r.groupOf(id)) {
			o.State = Paused
		}
	}
	return o, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
