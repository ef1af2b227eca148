package ui

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/lipgloss"
)

// Progress shows long work: what is being done, how many of how many, for how long. A terminal gets one line that
// is redrawn; anything else gets a plain line now and then, and none for work that is done at once. The live line
// changes no mode of the terminal, so there is nothing to restore when the command is killed.
type Progress struct {
	t     *Terminal
	start time.Time

	mu          sync.Mutex // guards all below
	what        string
	done, total int
	said        time.Time // when the last plain line was written; at first, when the work began
	saidLine    string    // it, without the time
	closed      bool

	quit chan struct{}
	gone sync.WaitGroup
}

const (
	liveEvery  = 100 * time.Millisecond
	plainFirst = 2 * time.Second  // work that takes less is not talked about
	plainEvery = 5 * time.Second  // while it moves
	plainStill = 30 * time.Second // while nothing moves
	barWidth   = 24
)

// Progress begins to show work. Close ends it.
func (t *Terminal) Progress() *Progress {
	p := &Progress{t: t, start: time.Now(), said: time.Now(), quit: make(chan struct{})}
	if !t.Quiet {
		p.gone.Go(p.refresh)
	}
	return p
}

func (p *Progress) live() bool { return p.t.err != nil && !p.t.Quiet }

// refresh shows the time that passes while no step comes.
func (p *Progress) refresh() {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			p.mu.Lock()
			p.show()
			p.mu.Unlock()
		}
	}
}

func (p *Progress) show() {
	if p.live() {
		p.draw()
	} else {
		p.say()
	}
}

// say writes a plain line if it is time for one.
func (p *Progress) say() {
	wait := plainEvery
	switch line := p.line(); {
	case p.what == "":
		return
	case p.saidLine == "":
		wait = plainFirst
	case p.saidLine == line:
		wait = plainStill
	}
	if now := time.Now(); now.Sub(p.said) >= wait {
		p.said, p.saidLine = now, p.line()
		fmt.Fprintln(p.t.Err, p.saidLine+", "+Elapsed(p.Elapsed()))
	}
}

// Step says what is being done now, and how far it is; a total of 0 means that it is not known.
func (p *Progress) Step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	changed := what != p.what
	p.what, p.done, p.total = what, done, total
	if !p.t.Quiet && (changed || !p.live()) {
		p.show()
	}
}

// Note writes a line that stays, above the live line.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.t.Quiet {
		return
	}
	p.clear()
	fmt.Fprintf(p.t.Err, format+"\n", args...)
	if p.live() && !p.closed {
		p.draw()
	}
}

// Aside calls f, which writes to the terminal and may ask there, while no live line is.
func (p *Progress) Aside(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.t.Quiet {
		p.clear()
	}
	f()
	if p.live() && !p.closed {
		p.draw()
	}
}

// Elapsed is the time since the work began.
func (p *Progress) Elapsed() time.Duration { return time.Since(p.start) }

// Close removes the live line. It may be called twice.
func (p *Progress) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return
	}
	close(p.quit)
	p.gone.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *Progress) clear() {
	if p.live() {
		fmt.Fprint(p.t.Err, "\r\x1b[K")
	}
}

func (p *Progress) draw() {
	if p.what == "" {
		return
	}
	line := p.line() + ", " + Elapsed(p.Elapsed())
	w := width(p.t.err)
	// the numbers matter more than the bar
	if fits := w <= 1 || barWidth+1+lipgloss.Width(line) < w; fits && p.total > 0 {
		line = p.t.PaintErr(p.t.Styles.Good, bar(p.done, p.total)) + " " + line
	}
	if w > 1 {
		line = lipgloss.NewStyle().MaxWidth(w - 1).Render(line)
	}
	fmt.Fprint(p.t.Err, "\r\x1b[K"+line)
}

// bar is not of the bubbles library: that one, when it is merely linked, asks the terminal for its colours at every
// start, and waits for an answer.
func bar(done, total int) string {
	full := barWidth * min(done, total) / total
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

func (p *Progress) line() string {
	line := p.what
	if p.total > 0 {
		line += fmt.Sprintf(" %d/%d", p.done, p.total)
	}
	return line
}
