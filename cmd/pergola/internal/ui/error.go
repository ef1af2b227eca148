package ui

import (
	"errors"
	"fmt"
	"strings"
)

// The exit statuses of every command; docs/cli says the same. `exec` and `shell` pass on the status of what ran in
// the node and use ExitNotRun where nothing ran.
const (
	ExitOK          = 0
	ExitFailed      = 1   // what was asked for failed, or a check does not hold
	ExitUsage       = 2   // the command line is wrong; for check and wait: it could not be carried out
	ExitNothing     = 3   // there was nothing to check, or nothing by which routing could be judged
	ExitNotRun      = 125 // exec, shell: Pergola failed before the command could run (as docker and podman have it)
	ExitInterrupted = 130 // Ctrl-C
)

// Error is an error with the status that the command ends with and what a person can do about it.
type Error struct {
	Code int
	Err  error  // nil: everything was said already
	Do   string // what to do; lines
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Exit ends the command with a status and without another word.
func Exit(code int) error {
	if code == ExitOK {
		return nil
	}
	return &Error{Code: code}
}

// Usage is an error in the command line.
func Usage(do, format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...), Do: do}
}

// Advise adds to err what to do about it. The status stays what it was.
func Advise(err error, format string, args ...any) error {
	return &Error{Code: Code(err), Err: err, Do: fmt.Sprintf(format, args...)}
}

// WithCode gives err another status, unless the command was interrupted or ended by Exit; what to do about it stays.
func WithCode(err error, code int) error {
	if err == nil || Code(err) == ExitInterrupted {
		return err
	}
	var e *Error
	if errors.As(err, &e) && e.Err == nil {
		return err
	}
	if e != nil {
		return &Error{Code: code, Err: err, Do: e.Do}
	}
	return &Error{Code: code, Err: err}
}

// Code is the status for err.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.Code
	}
	return ExitFailed
}

// Fail prints err: what went wrong, why, and what to do.
func (t *Terminal) Fail(err error) {
	if err == nil {
		return
	}
	var e *Error
	do := ""
	if errors.As(err, &e) {
		if e.Err == nil {
			return
		}
		do = e.Do
	}
	fmt.Fprintf(t.Err, "%s %s\n", t.PaintErr(t.Styles.Bad.Bold(true), "error:"), strings.TrimSpace(err.Error()))
	for line := range strings.SplitSeq(strings.TrimSpace(do), "\n") {
		if line != "" {
			fmt.Fprintf(t.Err, "       %s\n", line)
		}
	}
}

// Interrupted ends a command that Ctrl-C ended; do says what goes on without it.
func Interrupted(do string) error {
	return &Error{Code: ExitInterrupted, Err: errors.New("interrupted"), Do: do}
}
