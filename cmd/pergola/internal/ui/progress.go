package ui

import (
	"fmt"
	"sync"
	"time"

	"github.com/charmbracelet/bubbles/progress"
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Progress shows long work: what is being done, how many of how many, for how long. A terminal gets one line that
// is redrawn; anything else gets a line when the work changes, and at most one every plainEvery while it goes on.
// The live line changes no mode of the terminal, so there is nothing to restore when the command is killed.
type Progress struct {
	t     *Terminal
	now   func() time.Time
	start time.Time
	bar   progress.Model

	mu          sync.Mutex // guards all below
	what        string
	done, total int
	said        time.Time // when the last plain line was written
	saidDone    int
	closed      bool

	quit chan struct{}
	gone sync.WaitGroup
}

const (
	liveEvery  = 100 * time.Millisecond
	plainEvery = 5 * time.Second
	barWidth   = 24
)

// Progress begins to show work. Close ends it.
func (t *Terminal) Progress() *Progress { return t.progressAt(time.Now) }

func (t *Terminal) progressAt(now func() time.Time) *Progress {
	profile := termenv.Ascii
	if t.color {
		profile = termenv.ANSI
	}
	p := &Progress{
		t: t, now: now, start: now(), quit: make(chan struct{}),
		bar: progress.New(progress.WithSolidFill("2"), progress.WithWidth(barWidth),
			progress.WithoutPercentage(), progress.WithColorProfile(profile)),
	}
	if p.live() {
		p.gone.Go(p.redraw)
	}
	return p
}

func (p *Progress) live() bool { return p.t.err != nil && !p.t.Quiet }

func (p *Progress) redraw() {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// Step says what is being done now, and how far it is; a total of 0 means that nobody knows.
func (p *Progress) Step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	changed := what != p.what
	p.what, p.done, p.total = what, done, total
	switch {
	case p.t.Quiet:
	case p.live():
		if changed {
			p.draw()
		}
	case changed || done != p.saidDone && p.now().Sub(p.said) >= plainEvery:
		p.said, p.saidDone = p.now(), done
		fmt.Fprintln(p.t.Err, p.line())
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

// Elapsed is the time since the work began.
func (p *Progress) Elapsed() time.Duration { return p.now().Sub(p.start) }

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
	line := p.line()
	if p.total > 0 {
		line = p.bar.ViewAs(float64(p.done)/float64(p.total)) + " " + line
	}
	if w := width(p.t.err); w > 1 {
		line = lipgloss.NewStyle().MaxWidth(w - 1).Render(line)
	}
	fmt.Fprint(p.t.Err, "\r\x1b[K"+line)
}

func (p *Progress) line() string {
	line := p.what
	if p.total > 0 {
		line += fmt.Sprintf(" %d/%d", p.done, p.total)
	}
	return line + ", " + Elapsed(p.Elapsed())
}
