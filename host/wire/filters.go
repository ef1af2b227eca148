package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/datapath/program"
)

// ErrFilterText means that a filter is not written as filters are.
var ErrFilterText = errors.New("this is no filter of the program")

// ProgramFilters are the filters that a packet program has.
type ProgramFilters struct {
	Key     []program.Field
	Filters []program.Entry // by table, and in each in the order in which they win
}

// ProgramFilters lists the filters of a packet program, with their hits.
func (s *HostNetwork) ProgramFilters(ctx context.Context, name string) (all ProgramFilters, err error) {
	if err := ctx.Err(); err != nil {
		return all, err
	}
	return all, s.programs.Filters(name, func(o *program.Object, t *program.Tables) error {
		all.Key = o.Key
		all.Filters, err = t.List()
		return err
	})
}

// ChangeFilters deletes filters of a packet program, and then inserts others: all, or nothing. Each is a line, as
// program.ParseFilters has it; of those that are deleted, the verdict may be missing.
func (s *HostNetwork) ChangeFilters(ctx context.Context, name string, deleted, inserted []string) error {
	return s.writeFilters(ctx, name, func(key []program.Field) (write, error) {
		out, err := readFilters(deleted, key, program.ParseMatch)
		if err != nil {
			return nil, err
		}
		in, err := readFilters(inserted, key, program.ParseFilter)
		if err != nil {
			return nil, err
		}
		return func(t *program.Tables) error {
			return nameFilter(t.Change(out, in), slices.Concat(deleted, inserted))
		}, nil
	})
}

// ReplaceFilters makes filters all that a packet program has, or changes nothing.
func (s *HostNetwork) ReplaceFilters(ctx context.Context, name string, filters []string) error {
	return s.writeFilters(ctx, name, func(key []program.Field) (write, error) {
		all, err := readFilters(filters, key, program.ParseFilter)
		if err != nil {
			return nil, err
		}
		return func(t *program.Tables) error { return nameFilter(t.Replace(all), filters) }, nil
	})
}

// A write changes tables, while nobody else does.
type write func(*program.Tables) error

// writeFilters has filters parsed for the key of a packet program, and then written. Parsing takes no lock: a long file
// holds up no other program. It is repeated if the program was replaced meanwhile.
func (s *HostNetwork) writeFilters(ctx context.Context, name string, parse func([]program.Field) (write, error)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		o, err := s.programs.Object(name)
		if err != nil {
			return err
		}
		w, err := parse(o.Key)
		if err != nil {
			return err
		}
		replaced := false
		err = s.programs.Filters(name, func(now *program.Object, t *program.Tables) error {
			if replaced = now != o; replaced {
				return nil
			}
			return w(t)
		})
		if !replaced {
			return err
		}
	}
}

func readFilters(lines []string, key []program.Field,
	parse func(string, []program.Field) (program.Filter, error)) ([]program.Filter, error) {
	all := make([]program.Filter, len(lines))
	for i, line := range lines {
		f, err := parse(line, key)
		if err != nil {
			return nil, &textError{fmt.Errorf("filter %q: %w", line, err)}
		}
		all[i] = f
	}
	return all, nil
}

// textError is an ErrFilterText that says more.
type textError struct{ err error }

func (e *textError) Error() string { return e.err.Error() }

func (e *textError) Is(target error) bool { return target == ErrFilterText }

// nameFilter names the filter that is to blame as it was written.
func nameFilter(err error, lines []string) error {
	var one *filter.Error
	if errors.As(err, &one) && one.Number >= 1 && one.Number <= len(lines) {
		return fmt.Errorf("filter %q: %w", lines[one.Number-1], one.Err)
	}
	return err
}
