package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/lab/testkit"
)

// stamp is a program that writes a number into the frame and counts frames in memory that is kept.
func stamp(t testing.TB, n string) *Object {
	t.Helper()
	source := filepath.Join(t.TempDir(), "stamp.c")
	text := `#include <pergola/program.h>
PERGOLA_MEMORY(uint64_t, 4);
PERGOLA_COUNTERS { uint64_t seen; };
uint64_t total;
PERGOLA_PARSE(packet)
{
	uint64_t *m = pergola_memory(1);
	if (m)
		__sync_fetch_and_add(m, 1);
	__sync_fetch_and_add(&total, 1);
	pergola_count(seen);
	*pergola_header(packet, 20, uint8_t) = ` + n + `;
	return PERGOLA_SEND;
}
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return build(t, source)
}

// caller is a program that calls what is in slot 3, and drops what comes back: a frame that met no program.
func caller(t testing.TB) (*ebpf.Program, *ebpf.Map) {
	t.Helper()
	table, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	if err != nil {
		t.Fatal(err)
	}
	const xdpHasFrags = 1 << 5 // BPF_F_XDP_HAS_FRAGS
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Flags: xdpHasFrags, Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R2, table.FD()),
			asm.Mov.Imm(asm.R3, 3),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, table
}

func TestProgramIsReplacedWhileFramesFlow(t *testing.T) {
	testkit.Root(t)
	objects := []*Object{stamp(t, "1"), stamp(t, "2")}
	entry, table := caller(t)
	slots := NewSlots(map[Hook]*ebpf.Map{XDP: table})
	current, err := slots.Replace(3, objects[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	stop, lost := make(chan struct{}), make(chan int)
	frames := 0
	go func() {
		missed := 0
		for {
			select {
			case <-stop:
				lost <- missed
				return
			default:
			}
			opts := ebpf.RunOptions{Data: udp4(t, "192.0.2.9", 9, 64), DataOut: make([]byte, 512)}
			const xdpTX = 3
			verdict, err := entry.Run(&opts)
			if err != nil || verdict != xdpTX || opts.DataOut[20] != 1 && opts.DataOut[20] != 2 {
				missed++
			}
			frames++
		}
	}()
	for i := range 30 {
		next, err := slots.Replace(3, objects[(i+1)%2], current)
		if err != nil {
			t.Error(err)
			break
		}
		if err := current.Close(); err != nil {
			t.Error(err)
		}
		current = next
	}
	close(stop)
	if missed := <-lost; missed > 0 {
		t.Errorf("%d of %d frames met no program", missed, frames)
	}
	// Memory, global variables and counters were kept.
	counters, err := current.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	var memory, total uint64
	if err := current.maps[prefix+memoryMap].Lookup(uint32(1), &memory); err != nil {
		t.Error(err)
	}
	if err := current.maps[prefix+".bss"].Lookup(uint32(0), &total); err != nil {
		t.Error(err)
	}
	want := []uint64{uint64(frames), uint64(frames), uint64(frames)}
	if diff := cmp.Diff(want, []uint64{memory, total, counters["seen"]}); diff != "" || frames == 0 {
		t.Errorf("memory, global variable, counter: %s", diff)
	}
	if err := current.Close(); err != nil {
		t.Error(err)
	}
}

func TestProgramStaysWhereTheNewerOneIsRefused(t *testing.T) {
	testkit.Root(t)
	entry, table := caller(t)
	slots := NewSlots(map[Hook]*ebpf.Map{XDP: table})
	older, err := slots.Replace(3, stamp(t, "1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := older.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := slots.Replace(3, build(t, "testdata/hostile/null.c"), older); err == nil {
		t.Error("a program that the verifier refuses was loaded")
	}
	// The table for tc takes no program for XDP: nothing is changed in the other one.
	wrong := NewSlots(map[Hook]*ebpf.Map{XDP: table, TC: table})
	if _, err := wrong.Replace(3, stamp(t, "2"), older); err == nil {
		t.Error("a table took programs of two kinds")
	}
	opts := ebpf.RunOptions{Data: udp4(t, "192.0.2.9", 9, 64), DataOut: make([]byte, 512)}
	if _, err := entry.Run(&opts); err != nil || opts.DataOut[20] != 1 {
		t.Errorf("the older program is not there: %v, %d", err, opts.DataOut[20])
	}
}
