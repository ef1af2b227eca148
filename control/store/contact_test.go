package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestASilentStoreIsLoggedOnceAndOnceMoreWhenItAnswers(t *testing.T) {
	var log bytes.Buffer
	c := NewContact(slog.New(slog.NewTextHandler(&log, nil)))
	silence := errors.New("no answer within 10s")
	for _, err := range []error{
		nil, context.Canceled, fmt.Errorf("lab: %w", ErrNotFound), // nothing is wrong
		silence, silence, context.Canceled, silence,
		fmt.Errorf("lab: %w", ErrDeleting), nil,
	} {
		c.Note(err)
	}
	lines := strings.Count(log.String(), "\n")
	if lines != 2 || !strings.Contains(log.String(), "does not answer") ||
		!strings.Contains(log.String(), "answers again") {
		t.Errorf("log:\n%s", log.String())
	}
}
