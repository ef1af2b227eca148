package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// NoteKind says what a note is about. Notes are numbers that user space has to find again, and that the kernel tells
// nowhere; no program reads them. They outlive the process that writes them, and end with the data path.
type NoteKind uint32

// The kinds.
const (
	// NoteProcess is, by port, the id of a process in the network namespace of the port's node. Netlink tells a
	// number of that namespace, but opens no namespace by its number. It goes with the port's record.
	NoteProcess = NoteKind(objectNoteKindNOTE_PROCESS)
	// NoteNIC is 1, by interface of the machine's namespace, where programs of the underlay may be attached. A
	// program of tc does not tell which data path it belongs to once its maps are no longer pinned.
	NoteNIC = NoteKind(objectNoteKindNOTE_NIC)
	// NoteForwarding is 1 for index 0 where net.ipv6.conf.default.forwarding of the machine may have been set by
	// us. The sysctl does not tell who set it.
	NoteForwarding = NoteKind(objectNoteKindNOTE_FORWARDING)
	// NoteSlow and NoteSlowHigh are, by tap device of a slow path, how many frames had been handed to the slow path
	// when the device was made, the lower and the upper 32 bits. The device counts from then on.
	NoteSlow     = NoteKind(objectNoteKindNOTE_SLOW)
	NoteSlowHigh = NoteKind(objectNoteKindNOTE_SLOW_HIGH)
	// NoteThreaded is, by interface of the machine's namespace, 1 where we let threads poll it, and 2 where we but
	// made them real-time ones. The kernel does not tell who did.
	NoteThreaded = NoteKind(objectNoteKindNOTE_THREADED)
)

// SetNote writes a note; 0 deletes it.
func (d *DataPath) SetNote(kind NoteKind, index int, value uint32) error {
	key := objectNote{Kind: objectNoteKind(kind), Index: uint32(index)}
	var err error
	if value == 0 {
		err = ignoreNotExist(d.maps.Notes.Delete(key))
	} else {
		err = d.maps.Notes.Put(key, value)
	}
	if err != nil {
		return fmt.Errorf("write note %d of %d: %w", kind, index, err)
	}
	return nil
}

// Note reads a note; 0: there is none.
func (d *DataPath) Note(kind NoteKind, index int) (value uint32, err error) {
	key := objectNote{Kind: objectNoteKind(kind), Index: uint32(index)}
	if err := ignoreNotExist(d.maps.Notes.Lookup(key, &value)); err != nil {
		return 0, fmt.Errorf("read note %d of %d: %w", kind, index, err)
	}
	return value, nil
}

// Notes reads all notes of a kind, by index.
func (d *DataPath) Notes(kind NoteKind) (map[int]uint32, error) { return notesOf(d.maps.Notes, kind) }

// PinnedNotes reads the notes of a kind of the data path that is pinned in a directory, which is not opened: it may be
// half made, or of another version. There are none where no data path is.
func PinnedNotes(dir string, kind NoteKind) (map[int]uint32, error) {
	pins, err := filepath.Glob(filepath.Join(dir, "abi*", objectMapNotes))
	if err != nil {
		return nil, err
	}
	all := map[int]uint32{}
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read notes: %w", err)
		}
		some, err := notesOf(m, kind)
		if err := errors.Join(err, m.Close()); err != nil {
			return nil, err
		}
		for index, value := range some {
			all[index] = value
		}
	}
	return all, nil
}

func notesOf(m *ebpf.Map, kind NoteKind) (map[int]uint32, error) {
	const chunk = 4096
	var (
		at     ebpf.MapBatchCursor
		keys   = make([]objectNote, chunk)
		values = make([]uint32, chunk)
		all    = map[int]uint32{}
	)
	for {
		n, err := m.BatchLookup(&at, keys, values, nil)
		for i, key := range keys[:n] {
			if key.Kind == objectNoteKind(kind) {
				all[int(key.Index)] = values[i]
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // there are no more
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read notes: %w", err)
		}
	}
}
