// Package shape reads what `link set` is to change.
package shape

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// Flags are the values as users write them, with the units of the topology file.
type Flags struct {
	rate, delay, jitter, loss, police, burst string
	queue                                    int
	removed                                  []int // queues of a packet program

	// By number of the queue.
	shares, lengths, queueRates, reserves, priorities map[string]string
}

// Add declares the flags.
func (f *Flags) Add(set *pflag.FlagSet) {
	set.StringVar(&f.rate, "rate", "", "bits a second, such as 10Mbit or 1G; 0: no limit")
	set.StringVar(&f.delay, "delay", "", "added one way, such as 20ms; 0: none")
	set.StringVar(&f.jitter, "jitter", "", "standard deviation of the delay, such as 2ms; 0: none")
	set.StringVar(&f.loss, "loss", "", "per cent of frames lost, such as 0.5; 0: none")
	set.IntVar(&f.queue, "queue", 0, "frames that wait before the tail is dropped; 0: the kernel's default")
	set.StringVar(&f.police, "police", "",
		"bits a second above which frames are dropped at once, such as 10Mbit; 0: none are")
	set.StringVar(&f.burst, "burst", "",
		"bytes that may come at once where frames are policed, such as 64KiB; 0: the default")
	queue := func(to *map[string]string, name, usage string) { set.StringToStringVar(to, name, nil, usage) }
	queue(&f.shares, "share", "weights of queues of a packet program, by number, such as 1=30,2=25")
	queue(&f.lengths, "length", "lengths of such queues, in frames or bytes, such as 1=200,2=64KiB")
	queue(&f.queueRates, "queue-rate", "bits a second that such queues get at most; 0: the link's")
	queue(&f.reserves, "reserve", "bits a second that such queues get whenever they want them")
	queue(&f.priorities, "queue-priority", "order in which such queues get the rate, such as 1=1: first; 8: last")
	set.IntSliceVar(&f.removed, "remove-queue", nil,
		"numbers of such queues to remove, the last one first, such as 4,3; what waits in them is lost")
}

// Patch is the change that the flags in a parsed set ask for. None at all is an error.
func (f *Flags) Patch(set *pflag.FlagSet) (p api.LinkPatch, err error) {
	read := []struct {
		name string
		into func() error
	}{
		{"rate", func() error { return assign(&p.Rate, topology.Rate(f.rate).Bits) }},
		{"delay", func() error { return assign(&p.Delay, topology.Duration(f.delay).Duration) }},
		{"jitter", func() error { return assign(&p.Jitter, topology.Duration(f.jitter).Duration) }},
		{"loss", func() error { return assign(&p.Loss, topology.Percent(f.loss).Value) }},
		{"queue", func() error { return assign(&p.Queue, f.frames) }},
		{"police", func() error { return assign(&p.Police, topology.PolicedRate(f.police).Bits) }},
		{"burst", func() error { return assign(&p.Burst, topology.Burst(f.burst).Count) }},
		{"share", func() error { return eachQueue(&p, f.shares, setShare) }},
		{"length", func() error { return eachQueue(&p, f.lengths, setLength) }},
		{"queue-rate", func() error { return eachQueue(&p, f.queueRates, setRate) }},
		{"reserve", func() error { return eachQueue(&p, f.reserves, setReserve) }},
		{"queue-priority", func() error { return eachQueue(&p, f.priorities, setPriority) }},
		{"remove-queue", func() error { return f.remove(&p) }},
	}
	changes := 0
	for _, r := range read {
		if !set.Changed(r.name) {
			continue
		}
		changes++
		if err := r.into(); err != nil {
			return p, ui.Usage("", "--%s: %w", r.name, err)
		}
	}
	if changes == 0 {
		return p, ui.Usage("name at least one of --rate, --delay, --jitter, --loss, --queue, --police, "+
			"--burst, --share, --length, --queue-rate, --queue-priority, --reserve, --remove-queue",
			"nothing to change")
	}
	return p, nil
}

// eachQueue reads values of queues, by their numbers.
func eachQueue(p *api.LinkPatch, values map[string]string, read func(*api.QueuePatch, string) error) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		number, err := strconv.Atoi(key)
		if err != nil || number < 0 {
			return fmt.Errorf("%q is no number of a queue: write such as 1=%s", key, values[key])
		}
		at := slices.IndexFunc(p.Queues, func(q api.QueuePatch) bool { return q.Number == number })
		if at < 0 {
			at = len(p.Queues)
			p.Queues = append(p.Queues, api.QueuePatch{Number: number})
		}
		if err := read(&p.Queues[at], values[key]); err != nil {
			return fmt.Errorf("queue %d: %w", number, err)
		}
	}
	return nil
}

func (f *Flags) remove(p *api.LinkPatch) error {
	for _, number := range f.removed {
		if number < 1 {
			return fmt.Errorf("%d is no number of a queue that can be removed: 0 is always there", number)
		}
		p.Queues = append(p.Queues, api.QueuePatch{Number: number, Remove: true})
	}
	return nil
}

func setShare(q *api.QueuePatch, text string) error {
	return assign(&q.Share, func() (int, error) { return upTo(slice.MaxShare, "share", text) })
}

func setPriority(q *api.QueuePatch, text string) error {
	return assign(&q.Priority, func() (int, error) { return upTo(slice.LastPriority, "priority", text) })
}

// upTo reads a number from 1 on.
func upTo(most int, what, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s %s is out of range: 1 to %d", what, text, most)
	}
	return n, nil
}

func setLength(q *api.QueuePatch, text string) error {
	return assign(&q.Length, topology.QueueLength(text).Value)
}

func setRate(q *api.QueuePatch, text string) error { return assign(&q.Rate, topology.Rate(text).Bits) }

func setReserve(q *api.QueuePatch, text string) error {
	return assign(&q.Reserve, topology.Rate(text).Bits)
}

func assign[T any](to **T, read func() (T, error)) error {
	v, err := read()
	if err != nil {
		return err
	}
	*to = &v
	return nil
}

func (f *Flags) frames() (int, error) {
	if f.queue < 0 {
		return 0, fmt.Errorf("%d frames are less than none", f.queue)
	}
	return f.queue, nil
}
