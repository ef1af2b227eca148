package mirror

import "time"

// dump is how far the dump of everything has come, and when the next is due.
type dump struct {
	part        part // under way; parts: none
	waiting     bool // for the kernel's answer
	interrupted bool // it will not be whole
	repeats     int  // of this part
	begun       time.Time
	ended       time.Time
	took        time.Duration
	due         time.Time // zero: not
}

// Events that need a dump come in crowds: the first waits a little for the others. Afterwards dumps take at most a
// tenth of the time, however fast a node changes.
const (
	crowd = 2 * time.Millisecond
	rest  = 9
)

func (d *dump) idle() bool { return !d.waiting }

func (d *dump) isDue(now time.Time) bool { return !d.due.IsZero() && !now.Before(d.due) }

func (d *dump) schedule(now time.Time) {
	d.due = now.Add(crowd)
	if earliest := d.ended.Add(rest * d.took); d.due.Before(earliest) {
		d.due = earliest
	}
}

func (d *dump) end(now time.Time) {
	d.ended, d.took = now, now.Sub(d.begun)
}

// again lets the part be repeated: the first time at once, later with pauses that grow.
func (d *dump) retry(now time.Time) {
	d.due = now.Add(time.Duration(d.repeats) * time.Duration(d.repeats) * 50 * time.Millisecond)
	d.repeats = min(d.repeats+1, 14)
}

// limiter bounds what one node's changes may cost: a bucket of events, and a pause when it is empty.
type limiter struct {
	rate, burst, tokens float64
	last                time.Time
	until               time.Time     // of the pause; zero: none
	paused              time.Duration // the last pause
}

const (
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
)

// resyncCost is how many events a resync counts for.
const resyncCost = 200

// exceeded takes events into account.
func (l *limiter) exceeded(now time.Time, events int) bool {
	l.refill(now)
	l.tokens -= float64(events)
	return l.tokens < 0
}

func (l *limiter) refill(now time.Time) {
	l.tokens = min(l.burst, l.tokens+now.Sub(l.last).Seconds()*l.rate)
	if l.last.IsZero() || l.tokens >= l.burst {
		l.tokens, l.paused = l.burst, 0
	}
	l.last = now
}

// pause begins one, twice as long as the last unless the node was calm in between.
func (l *limiter) pause(now time.Time) {
	l.paused = min(max(pauseFirst, 2*l.paused), pauseMost)
	l.until = now.Add(l.paused)
	l.tokens = 0
}

// over ends a pause whose time has come.
func (l *limiter) over(now time.Time) bool {
	if l.until.IsZero() || now.Before(l.until) {
		return false
	}
	l.until, l.last = time.Time{}, now
	l.tokens = l.rate // a second's worth: a node that is not calm soon exceeds it
	return true
}
