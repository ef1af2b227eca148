package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// PingOptions says how Ping asks. The zero value is right for checks: one reply from each target within two seconds.
type PingOptions struct {
	Count    int           // replies wanted of each target; 0: one
	Interval time.Duration // between requests to one target; 0: 250 ms
	Timeout  time.Duration // for everything; 0: two seconds, and an interval more for each reply beyond the first
	Source   netip.Addr    // of requests; not valid: the kernel's choice. It must be of the targets' family
}

func (o PingOptions) withDefaults() PingOptions {
	o.Count = max(o.Count, 1)
	o.Interval = cmp.Or(o.Interval, 250*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second+time.Duration(o.Count-1)*o.Interval)
	return o
}

// PingResult is what was heard of one target.
type PingResult struct {
	Target   netip.Addr
	Sent     int
	Received int
	RTT      time.Duration // the shortest
	Err      error         // nil if Received is what was wanted

	refused int // rounds one after the other in which the node's kernel did not send
}

// hopeless rounds without a route, a second by default, and the target is not asked any more: routing has converged
// before, or would have to be waited for.
const hopeless = 4

func (r *PingResult) isHopeless() bool { return r.refused >= hopeless }

// pace bounds bursts: routers queue few packets for a neighbour that they do not know yet.
const (
	paceBurst = 32
	pacePause = time.Millisecond
)

// Ping sends ICMP echo requests from a node to many targets at once, by one socket for each family. It asks until every
// target answered as often as wanted or cannot be sent to, or Timeout: the packet that is lost while a neighbour is
// looked up fails nothing. Results are in the order of targets. The error is about the node; a target that does not
// answer is a result.
func Ping(ctx context.Context, pid int, targets []netip.Addr, opt PingOptions) ([]PingResult, error) {
	opt = opt.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	results := make([]PingResult, len(targets))
	var families [2][]*PingResult
	for i, t := range targets {
		results[i].Target = t.Unmap()
		f := familyOf(results[i].Target)
		families[f] = append(families[f], &results[i])
	}
	var g errgroup.Group
	for f, some := range families {
		if len(some) == 0 {
			continue
		}
		g.Go(func() error {
			s, err := openEcho(pid, opt.Source, f == 1)
			if err != nil {
				return err
			}
			p := &pinger{socket: s, opt: opt, targets: some, sent: map[uint16]request{}, left: len(some)}
			p.run(ctx)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("ping: %w", err)
	}
	return results, nil
}

// pinger pings the targets of one family.
type pinger struct {
	socket  *echoSocket
	opt     PingOptions
	targets []*PingResult
	sent    map[uint16]request // by sequence number; numbers come round after 65,536 requests
	seq     uint16
	left    int // targets that still owe replies
	answers chan answer
}

// request is one that was sent.
type request struct {
	target *PingResult
	at     time.Time
}

// run sends rounds of requests until no reply is missing or ctx ends.
func (p *pinger) run(ctx context.Context) {
	p.answers = make(chan answer, 1024)
	go p.socket.listen(p.answers)
	defer func() {
		_ = p.socket.conn.Close()
		for range p.answers { // listen ends when it notices
		}
	}()
	for p.left > 0 && ctx.Err() == nil {
		round := time.Now()
		p.sendRound(ctx)
		p.receiveUntil(ctx, round.Add(p.opt.Interval))
	}
	for _, t := range p.targets {
		if t.Received >= p.opt.Count {
			t.Err = nil
			continue
		}
		cause := t.Err
		if cause == nil {
			cause = errNoReply
		}
		if t.isHopeless() {
			t.Err = fmt.Errorf("cannot send: %w", cause)
			continue
		}
		t.Err = fmt.Errorf("%d of %d replies within %v: %w", t.Received, p.opt.Count, p.opt.Timeout, cause)
	}
}

var errNoReply = errors.New("nothing came back")

// sendRound asks every target that owes a reply once more.
func (p *pinger) sendRound(ctx context.Context) {
	burst := 0
	for _, t := range p.targets {
		if t.Received >= p.opt.Count || t.isHopeless() {
			continue
		}
		if burst++; burst%paceBurst == 0 {
			p.receiveUntil(ctx, time.Now().Add(pacePause))
		}
		if ctx.Err() != nil {
			return
		}
		p.seq++
		p.sent[p.seq] = request{t, time.Now()}
		p.ask(t)
	}
}

// ask sends one request.
func (p *pinger) ask(t *PingResult) {
	t.Sent++
	if err := p.socket.send(t.Target, p.seq); err != nil {
		t.Err = err // the next round may find a route
		// Without the addresses, so that one cause has the same words at all targets: results are summed up by
		// it.
		var errno unix.Errno
		if errors.As(err, &errno) {
			t.Err = errno
		}
		if t.refused++; t.isHopeless() {
			p.left--
		}
		return
	}
	t.refused = 0
}

// receiveUntil takes answers until the time, or until none is missing.
func (p *pinger) receiveUntil(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for p.left > 0 {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case a, ok := <-p.answers:
			if !ok {
				return
			}
			p.take(a)
		}
	}
}

// take notes an answer.
func (p *pinger) take(a answer) {
	r, ok := p.sent[a.seq]
	if !ok {
		return
	}
	t := r.target
	if !a.reply {
		t.Err = fmt.Errorf("%s says: %s", a.from, a.cause)
		return
	}
	if a.from != t.Target || t.Received >= p.opt.Count || t.isHopeless() {
		return
	}
	delete(p.sent, a.seq) // a duplicate is not a second reply
	if rtt := a.at.Sub(r.at); t.Received == 0 || rtt < t.RTT {
		t.RTT = rtt
	}
	if t.Received++; t.Received == p.opt.Count {
		p.left--
	}
}
