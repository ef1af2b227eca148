package wire

import (
	"errors"

	"github.com/pergola-net/pergola/datapath/program"
)

// ErrFilterText means that a filter is not written as filters are.
var ErrFilterText = errors.New("this is no filter of the program")

// ProgramFilters are the filters that a packet program has.
type ProgramFilters struct {
	Key     []program.Field
	Filters []program.Entry // by table, and in each in the order in which they win
}
