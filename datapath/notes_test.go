package datapath

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotesAreReadBackByKind(t *testing.T) {
	const many = 10_000 // more than are read at a time
	inBench(t, func(b *bench) {
		d := b.open()
		wanted := map[int]uint32{}
		for i := range many {
			wanted[i] = uint32(100_000 + i)
			b.check(d.SetNote(NoteProcess, i, wanted[i]))
		}
		b.check(d.SetNote(NoteNIC, 7, 1))
		read := func(kind NoteKind, want map[int]uint32) {
			t.Helper()
			if diff := cmp.Diff(want, must(d.Notes(kind))); diff != "" {
				t.Errorf("notes of kind %d (-want +have):\n%s", kind, diff)
			}
		}
		read(NoteProcess, wanted)
		read(NoteNIC, map[int]uint32{7: 1})
		read(NoteForwarding, map[int]uint32{})
		if v := must(d.Note(NoteProcess, 5)); v != wanted[5] {
			t.Errorf("note 5 is %d, want %d", v, wanted[5])
		}
		if v := must(d.Note(NoteForwarding, 0)); v != 0 {
			t.Errorf("a note that was not written is %d", v)
		}

		// A process is that of a port, and goes with its record.
		b.check(d.Forget(5))
		b.check(d.Add(6, Port{MTU: 1500}))
		if gone, anew := must(d.Note(NoteProcess, 5)), must(d.Note(NoteProcess, 6)); gone != 0 || anew != 0 {
			t.Errorf("of a port that is forgotten the note is %d, of a new one %d", gone, anew)
		}
		b.check(d.SetNote(NoteNIC, 7, 0))
		b.check(d.SetNote(NoteNIC, 7, 0)) // again
		read(NoteNIC, map[int]uint32{})

		b.check(d.SetNote(NoteNIC, 9, 1))
		b.check(d.Close())
		if diff := cmp.Diff(map[int]uint32{9: 1}, must(PinnedNotes(b.dir, NoteNIC))); diff != "" {
			t.Errorf("notes of a data path that is not open (-want +have):\n%s", diff)
		}
		if none := must(PinnedNotes(b.dir+"/none", NoteNIC)); len(none) > 0 {
			t.Errorf("notes of no data path: %v", none)
		}
	})
}
