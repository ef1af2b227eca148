package probe

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"
)

// PathOptions says how Path looks.
type PathOptions struct {
	MaxHops int           // 0: 32
	Timeout time.Duration // 0: three seconds
	Source  netip.Addr    // of requests; not valid: the kernel's choice
}

// pathInterval is the pause before a hop that kept silent is asked again. Kernels limit how many errors they send.
const pathInterval = 300 * time.Millisecond

// Path finds which addresses packets from a node to the target pass, as traceroute does: by echo requests whose hop
// limit is used up on the way. The last address is the target's; an address that is not valid stands for a hop that
// kept silent. The error says why the target was not reached, and comes with the hops that were.
func Path(ctx context.Context, pid int, target netip.Addr, opt PathOptions) ([]netip.Addr, error) {
	opt.MaxHops = min(cmp.Or(opt.MaxHops, 32), 255)
	opt.Timeout = cmp.Or(opt.Timeout, 3*time.Second)
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	target = target.Unmap()
	s, err := openEcho(pid, opt.Source, target.Is6())
	if err != nil {
		return nil, fmt.Errorf("trace the path to %s: %w", target, err)
	}
	t := &tracer{socket: s, target: target, hops: make([]netip.Addr, opt.MaxHops+1), end: opt.MaxHops + 1}
	if err := t.run(ctx); err != nil {
		return t.found(), fmt.Errorf("trace the path to %s: %w", target, err)
	}
	return t.found(), nil
}

// tracer asks all hops at once, window by window.
type tracer struct {
	socket *echoSocket
	target netip.Addr
	hops   []netip.Addr // by hop limit, from 1
	end    int          // the hop limit at which the path ends, as far as is known
	reach  bool         // the target answered
	cause  error        // why the path ends elsewhere
}

// pathWindow bounds how far beyond the last hop that answered is asked.
const pathWindow = 8

func (t *tracer) run(ctx context.Context) error {
	answers := make(chan answer, 256)
	go t.socket.listen(answers)
	defer func() {
		_ = t.socket.conn.Close()
		for range answers { // listen ends when it notices
		}
	}()
	for !t.complete() {
		asked, err := t.ask()
		if err != nil {
			t.cause = err
		}
		timer := time.After(pathInterval)
		for waiting := true; waiting && !t.complete() && !t.allAnswered(asked); {
			select {
			case a := <-answers:
				t.take(a)
			case <-timer:
				waiting = false
			case <-ctx.Done():
				return t.verdict(ctx.Err())
			}
		}
		if ctx.Err() != nil {
			return t.verdict(ctx.Err())
		}
	}
	return t.verdict(nil)
}

// ask sends one request to every hop that has not answered, up to a window beyond the last that did. It gives the
// farthest hop asked.
func (t *tracer) ask() (int, error) {
	last := 0
	for i := 1; i < t.end; i++ {
		if t.hops[i].IsValid() {
			last = i
		}
	}
	far := min(last+pathWindow, t.end, len(t.hops)-1)
	for ttl := 1; ttl <= far; ttl++ {
		if t.hops[ttl].IsValid() {
			continue
		}
		if err := t.socket.hopLimit(ttl); err != nil {
			return far, err
		}
		if err := t.socket.send(t.target, uint16(ttl)); err != nil {
			return far, err
		}
	}
	return far, nil
}

// take notes an answer. The sequence number is the hop limit of the request.
func (t *tracer) take(a answer) {
	ttl := int(a.seq)
	if ttl < 1 || ttl >= len(t.hops) || ttl > t.end {
		return
	}
	switch {
	case a.reply && a.from == t.target:
		t.end, t.reach, t.cause = ttl, true, nil
	case a.reply:
		return
	case !a.spent && ttl < t.end:
		t.end, t.reach, t.cause = ttl, false, fmt.Errorf("%s says: %s", a.from, a.cause)
	}
	t.hops[ttl] = a.from
}

// complete reports whether the end of the path and all hops before it are known.
func (t *tracer) complete() bool { return t.end < len(t.hops) && t.allAnswered(t.end) }

func (t *tracer) allAnswered(far int) bool {
	for i := 1; i <= far && i <= t.end && i < len(t.hops); i++ {
		if !t.hops[i].IsValid() {
			return false
		}
	}
	return true
}

// verdict is nil when the target was reached: hops that keep silent for good are no error.
func (t *tracer) verdict(ended error) error {
	if t.reach {
		return nil
	}
	return cmp.Or(t.cause, ended, errNoReply)
}

// found gives the hops up to the last that is known.
func (t *tracer) found() []netip.Addr {
	last := 0
	for i := 1; i < len(t.hops) && i <= t.end; i++ {
		if t.hops[i].IsValid() {
			last = i
		}
	}
	return t.hops[1 : last+1]
}
