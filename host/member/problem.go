package member

import "sync"

// Problem is what goes wrong now, in words. Its zero value is no problem.
type Problem struct {
	mu   sync.Mutex // guards text
	text string
}

// Set reports whether the problem is another one than before; nil is none.
func (p *Problem) Set(err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	changed = text != p.text
	p.text = text
	return changed
}

// String words the problem; empty where there is none.
func (p *Problem) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}
