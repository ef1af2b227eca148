package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OnCPU calls f on a thread that stays on one core.
func OnCPU(cpu int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return fmt.Errorf("ask for the cores of a thread: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("stay on core %d: %w", cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &was) }()
	return f()
}

// Load is what all cores have done since the machine started, in ticks of a hundredth of a second.
type Load struct {
	Total  uint64
	Stolen uint64 // taken by the hypervisor while there was work
}

// ReadLoad reads /proc/stat.
func ReadLoad() (Load, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Load{}, err
	}
	return parseLoad(text)
}

func parseLoad(text []byte) (Load, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(line))
	const steal = 8 // user nice system idle iowait irq softirq steal: proc_stat(5); guest time is in user time
	if len(words) <= steal || words[0] != "cpu" {
		return Load{}, fmt.Errorf("parse /proc/stat: its first line is %q", line)
	}
	var l Load
	for i, w := range words[1 : steal+1] {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return Load{}, fmt.Errorf("parse /proc/stat: %w", err)
		}
		l.Total += n
		if i+1 == steal {
			l.Stolen = n
		}
	}
	return l, nil
}

// StolenSince is the share of all cores' time that was stolen since an earlier reading.
func (l Load) StolenSince(earlier Load) float64 {
	if l.Total <= earlier.Total {
		return 0
	}
	return float64(l.Stolen-earlier.Stolen) / float64(l.Total-earlier.Total)
}

// Undisturbed measures in windows until there is one of whose time next to nothing was stolen. thrown counts those before it; ok is false if
// there was none in four.
func Undisturbed(ctx context.Context, window func() (float64, error)) (value float64, thrown int, ok bool, err error) {
	const (
		tries     = 4
		maxStolen = 0.01 // of all cores' time; less is below the kernel's reckoning in most windows
	)
	for thrown = range tries {
		if err := ctx.Err(); err != nil {
			return 0, thrown, false, err
		}
		before, err := ReadLoad()
		if err != nil {
			return 0, thrown, false, err
		}
		if value, err = window(); err != nil {
			return 0, thrown, false, errors.Join(err, ctx.Err())
		}
		after, err := ReadLoad()
		if err != nil {
			return 0, thrown, false, err
		}
		if after.StolenSince(before) <= maxStolen {
			return value, thrown, true, nil
		}
	}
	return 0, tries, false, nil
}
