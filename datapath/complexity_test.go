package datapath

import (
	"testing"

	"golang.org/x/sys/unix"
)

// budget is how many instructions the verifier may look at until it believes a program. It gives up at a million; kernels differ by a factor.
const budget = 60_000

func TestVerifierComplexityStaysWithinBudget(t *testing.T) {
	inBench(t, func(b *bench) {
		var uts unix.Utsname
		if err := unix.Uname(&uts); err != nil {
			b.Error(err)
		}
		d := b.open()
		defer func() { _ = d.Close() }()
		for name, p := range d.byName() {
			info, err := (*p).Info()
			if err != nil {
				b.Error(err)
				continue
			}
			n, ok := info.VerifiedInstructions()
			if !ok {
				b.Errorf("%s: the kernel does not say", name)
			}
			size, err := info.TranslatedSize()
			if err != nil {
				b.Error(err)
			}
			b.Logf("%s on Linux %s: %d instructions, %d verified, budget %d", name, unix.ByteSliceToString(uts.Release[:]), size/8, n, budget)
			if n > budget {
				b.Errorf("%s: the verifier looked at %d instructions, and may at %d", name, n, budget)
			}
		}
	})
}
