package testkit

import (
	"errors"
	"testing"
	"time"
)

// Eventually calls cond until it returns nil and fails the test with cond's last error if that takes longer than
// timeout. what completes the sentence "waited for ...".
func Eventually(t testing.TB, cond func() error, timeout time.Duration, what string) {
	t.Helper()
	if err := Poll(cond, timeout); err != nil {
		t.Fatalf("waited %v for %s: %v", timeout, what, err)
	}
}

// Await is Eventually for a condition that gives no reason while it does not hold.
func Await(t testing.TB, cond func() bool, timeout time.Duration, what string) {
	t.Helper()
	Eventually(t, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	}, timeout, what)
}

var errNotYet = errors.New("not yet")

// emulation is how much slower than its host the machine of the vm tier is, at most: everything is emulated there, and
// other tiers run beside it.
const emulation = 6

// Patience is how long to wait for what takes no longer than timeout where nothing is emulated.
func Patience(timeout time.Duration) time.Duration {
	if InVM() {
		timeout *= emulation
	}
	return timeout
}

// Poll is Eventually without a test: it gives cond's last error. It starts at a millisecond and backs off
// to a twentieth of a second: quick conditions are seen quickly and slow ones cost little. In the vm tier it waits
// several times as long.
func Poll(cond func() error, timeout time.Duration) error {
	deadline := time.Now().Add(Patience(timeout))
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}
