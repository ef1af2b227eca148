package undo_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/host/undo"
)

func TestStepsAreTakenBackwardsAndOnce(t *testing.T) {
	var steps undo.Steps
	var took []int
	bad := errors.New("bad")
	for i := range 3 {
		steps.Push(func() error {
			took = append(took, i)
			if i == 1 {
				return bad
			}
			return nil
		})
	}
	var none error
	steps.OnError(&none)
	if none != nil || len(took) > 0 {
		t.Errorf("undone without an error: %v", took)
	}
	cause := errors.New("cause")
	err := cause
	steps.OnError(&err)
	if !errors.Is(err, cause) || !errors.Is(err, bad) || !slices.Equal(took, []int{2, 1, 0}) {
		t.Errorf("took %v, error %v", took, err)
	}
	if err := steps.Run(); err != nil || len(took) != 3 {
		t.Errorf("taken twice: %v", took)
	}
}
