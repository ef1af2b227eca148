// Package undo keeps the reverse of steps taken: each is noted right after the step, and all are run backwards.
package undo

import (
	"errors"
	"slices"
)

// Steps are reverse steps, in the order of the steps.
type Steps []func() error

// Push notes the reverse of a step that was just taken.
func (s *Steps) Push(f func() error) { *s = append(*s, f) }

// Run takes all reverse steps, the last one first, and forgets them.
func (s *Steps) Run() error {
	var errs []error
	for _, f := range slices.Backward(*s) {
		errs = append(errs, f())
	}
	*s = nil
	return errors.Join(errs...)
}

// OnError runs them if *err is set, and adds what fails. It is for defer.
func (s *Steps) OnError(err *error) {
	if *err != nil {
		*err = errors.Join(*err, s.Run())
	}
}
