package kv

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestRequestsThatMissTheQuorumShareOneCount(t *testing.T) {
	t.Parallel()
	d := &DB{quorum: newQuorum()}
	running := make(chan struct{})
	d.quorum.counting = running
	found := make(chan error, 1)
	d.checkQuorum(context.WithValue(t.Context(), counting{}, true)) // the count's own request does not wait
	go func() {
		d.checkQuorum(t.Context())
		found <- d.quorum.missing()
	}()
	select {
	case err := <-found:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	d.quorum.lost(ErrNoQuorum)
	close(running)
	if err := <-found; !errors.Is(err, ErrNoQuorum) {
		t.Errorf("it found %v", err)
	}
}
