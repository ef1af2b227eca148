package rounds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// load is what all cores have done since the machine started, in ticks of a hundredth of a second.
type load struct {
	total  uint64
	stolen uint64 // taken by the hypervisor while there was work
}

// readLoad reads /proc/stat.
func readLoad() (load, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return load{}, err
	}
	return parseLoad(text)
}

func parseLoad(text []byte) (load, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(line))
	const steal = 8 // user nice system idle iowait irq softirq steal: proc_stat(5); guest time is in user time
	if len(words) <= steal || words[0] != "cpu" {
		return load{}, fmt.Errorf("parse /proc/stat: its first line is %q", line)
	}
	var l load
	for i, w := range words[1 : steal+1] {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return load{}, fmt.Errorf("parse /proc/stat: %w", err)
		}
		l.total += n
		if i+1 == steal {
			l.stolen = n
		}
	}
	return l, nil
}

// stolenSince is the share of all cores' time that was stolen since an earlier reading.
func (l load) stolenSince(earlier load) float64 {
	if l.total <= earlier.total {
		return 0
	}
	return float64(l.stolen-earlier.stolen) / float64(l.total-earlier.total)
}

// Undisturbed measures in windows until there is one of whose time next to nothing was stolen. ok is false if there was
// none in four. The windows are counted.
func Undisturbed[T any](ctx context.Context, c *Counts, window func() (T, error)) (value T, ok bool, err error) {
	const (
		tries     = 4
		maxStolen = 0.01 // of all cores' time; less is below the kernel's reckoning in most windows
	)
	var none T
	for range tries {
		if err := ctx.Err(); err != nil {
			return none, false, err
		}
		before, err := readLoad()
		if err != nil {
			return none, false, err
		}
		c.Windows++
		if value, err = window(); err != nil {
			return none, false, errors.Join(err, ctx.Err())
		}
		after, err := readLoad()
		if err != nil {
			return none, false, err
		}
		if after.stolenSince(before) <= maxStolen {
			return value, true, nil
		}
		c.Thrown++
	}
	return none, false, nil
}

// Stolen returns a function that gives the share of all cores' time that was stolen since it was called before, or
// since now.
func Stolen() func() (float64, error) {
	before, err := readLoad()
	return func() (float64, error) {
		if err != nil {
			return 0, err
		}
		now, err := readLoad()
		share := now.stolenSince(before)
		before = now
		return share, err
	}
}
