// Package program takes packet programs, which slices bring, from a C file to the kernel.
//
//	x.c --Build--> x.o --Read--> Object --Load--> Program
//
// Nothing of an object is trusted. Read takes from it instructions, the sizes of memory, and names, and nothing else;
// each instruction has to be one of a list, and whatever it refers to has to be in the object. Load puts the code into
// a copy of the platform's program, with prototypes that the platform writes, and the kernel's verifier decides about
// the whole. docs/decisions/012-packet-programs.md has the reasons.
package program

import (
	"fmt"
	"strings"
)

// Limits of a program.
const (
	MaxObject       = 256 << 10 // bytes of the object file
	MaxInstructions = 8192      // of all functions
	MaxVerified     = 32768     // instructions that the verifier looks at, and so that one frame costs at most
	MaxStack        = 256       // bytes, of parse or format with all functions that it calls at once
	MaxCallDepth    = 6         // functions that are called at once, below parse or format
	MaxMemory       = 16 << 20  // bytes of PERGOLA_MEMORY
	MaxElement      = 1 << 20   // bytes of one of its elements
	MaxGlobals      = 1 << 20   // bytes of global variables of each kind: zero, with a value, const
	MaxCounters     = 64
)

// RefusedError says why an object may not run, where, and what to do about it.
type RefusedError struct {
	Object   string // name of the object, as the caller gave it
	File     string // of the source; "" where no line is to blame
	Line     int
	Function string
	Problem  string   // "calls bpf_redirect, which programs may not"
	Advice   string   // what to do; a sentence without a full stop
	Log      []string // what the kernel's verifier said; nil where it was not asked
}

// Error has place and problem; Advice is for the caller to show.
func (e *RefusedError) Error() string {
	where := e.Object
	if e.File != "" {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Function != "" {
		return fmt.Sprintf("%s: %s: %s", where, e.Function, e.Problem)
	}
	return where + ": " + e.Problem
}

func refuse(advice, format string, args ...any) *RefusedError {
	return &RefusedError{Problem: fmt.Sprintf(format, args...), Advice: advice}
}

// stageName is what a user calls a function: parse for pergola_parse.
func stageName(symbol string) string { return strings.TrimPrefix(symbol, "pergola_") }
