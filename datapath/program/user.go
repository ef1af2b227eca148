package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// maxUserFilters is MAX_FILTERS of pergola/run.c, less the one that ends the list.
const maxUserFilters = 4095

// BuildUser compiles a C file to an executable that runs the same stages in user space (pergola/run.c says how), by
// the command in $CC, or cc. more are further flags of it.
func BuildUser(ctx context.Context, source, out string, more ...string) error {
	dir, err := os.MkdirTemp("", "pergola-program-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := WriteHeaders(dir); err != nil {
		return err
	}
	args := append([]string{"-O2", "-g", "-fno-strict-aliasing", "-Wall", "-Wextra", "-I", dir}, more...)
	args = append(args, source, filepath.Join(dir, "pergola", "run.c"), "-o", out)
	return compile(ctx, &NoCompilerError{cmp.Or(os.Getenv("CC"), "cc"), "gcc libc6-dev"}, source, args)
}

// EncodeFilters is the file that programs in user space read (PERGOLA_FILTERS).
func EncodeFilters(filters []Filter) ([]byte, error) {
	if len(filters) > maxUserFilters {
		return nil, fmt.Errorf("encode %d filters: a program in user space takes %d", len(filters),
			maxUserFilters)
	}
	var file bytes.Buffer
	for _, n := range byPriority(filters) {
		e, err := filters[n-1].encode()
		if err == nil {
			err = binary.Write(&file, nativeOrder, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("encode filter %d: %w", n, err)
		}
	}
	return file.Bytes(), nil
}

// byPriority gives the numbers of filters, from 1, in the order in which they win.
func byPriority(filters []Filter) []int {
	numbers := make([]int, len(filters))
	for i := range numbers {
		numbers[i] = i + 1
	}
	slices.SortStableFunc(numbers, func(a, b int) int {
		return cmp.Compare(filters[b-1].Priority, filters[a-1].Priority)
	})
	return numbers
}

// inOrder gives those of one table.
func inOrder(filters []Filter, table uint32) []int {
	return slices.DeleteFunc(byPriority(filters), func(n int) bool { return filters[n-1].Table != table })
}

// RunUser sends frames through an executable that BuildUser made, one after the other. The counters are in the order
// of the program's.
func RunUser(
	ctx context.Context, executable string, filters []Filter, frames []Frame,
) (outcomes []Outcome, counters []uint64, err error) {
	encoded, err := EncodeFilters(filters)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "pergola-program-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	table := filepath.Join(dir, "filters")
	if err := os.WriteFile(table, encoded, 0o600); err != nil {
		return nil, nil, err
	}
	var in, out bytes.Buffer
	for _, f := range frames {
		input := f.input()
		err := errors.Join(binary.Write(&in, nativeOrder, &input), binary.Write(&in, nativeOrder,
			uint32(len(f.Data))))
		if err != nil {
			return nil, nil, fmt.Errorf("encode a frame: %w", err)
		}
		in.Write(f.Data)
	}
	if executable, err = filepath.Abs(executable); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, executable, "--stdin")
	cmd.Env = append(os.Environ(), "PERGOLA_FILTERS="+table)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", filepath.Base(executable), err)
	}
	outcomes, counters, err = readUser(&out, len(frames))
	order := byPriority(filters)
	for i := range outcomes {
		outcomes[i].number(order)
		for j := range outcomes[i].Copies {
			outcomes[i].Copies[j].number(order)
		}
	}
	return outcomes, counters, err
}

// number makes the filter's place in the order its number.
func (o *Outcome) number(order []int) {
	if o.Filter > 0 && o.Filter <= len(order) {
		o.Filter = order[o.Filter-1]
	}
}

func readUser(out *bytes.Buffer, frames int) (outcomes []Outcome, counters []uint64, err error) {
	for i := range frames {
		o, err := readOutcome(out)
		if err != nil {
			return nil, nil, fmt.Errorf("read what became of frame %d: %w", i+1, err)
		}
		for {
			follows, err := out.ReadByte()
			if err != nil {
				return nil, nil, fmt.Errorf("read whether frame %d is copied: %w", i+1, err)
			}
			if follows == 0 {
				break
			}
			one, err := readOutcome(out)
			if err != nil {
				return nil, nil, fmt.Errorf("read what became of a copy of frame %d: %w", i+1, err)
			}
			o.Copies = append(o.Copies, one)
		}
		outcomes = append(outcomes, o)
	}
	counters = make([]uint64, MaxCounters)
	return outcomes, counters, binary.Read(out, nativeOrder, counters)
}

func readOutcome(out io.Reader) (Outcome, error) {
	var r stagesProgramRecord
	if err := binary.Read(out, nativeOrder, &r); err != nil {
		return Outcome{}, err
	}
	o, err := r.outcome()
	if err == nil && o.Leaves() {
		o.Data = make([]byte, r.Outcome.Length)
		_, err = io.ReadFull(out, o.Data)
	}
	return o, err
}
