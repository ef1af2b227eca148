package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// fanWidth bounds how many nodes run the command at the same time.
const fanWidth = 32

// Result is what became of the command in one node: the JSON of `exec --all`.
type Result struct {
	Node   string `json:"node"`
	Status int    `json:"status"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Error  string `json:"error,omitempty"` // why the command could not run; status is 125 then
}

// Fan runs a command in many nodes at once, without input. Each node's output is written in one piece when its
// command has ended, in the order of nodes; every line begins with the node's name. The error carries the highest
// status.
func Fan(ctx context.Context, s Server, t *ui.Terminal, name string, nodes []string, e api.ExecRequest) error {
	results := make([]Result, len(nodes))
	done := make([]chan struct{}, len(nodes))
	var g errgroup.Group
	g.SetLimit(fanWidth)
	e.TTY, e.Stdin = false, nil
	for i := range nodes {
		done[i] = make(chan struct{})
	}
	go func() {
		for i, node := range nodes {
			g.Go(func() error {
				defer close(done[i])
				results[i] = one(ctx, s, name, node, e)
				return nil
			})
		}
	}()
	worst := 0
	for i := range nodes {
		<-done[i]
		worst = max(worst, results[i].Status)
		if !t.JSON && ctx.Err() == nil {
			show(t, &results[i], longest(nodes))
		}
	}
	if ctx.Err() != nil {
		return ui.Interrupted("")
	}
	if t.JSON {
		if err := t.Emit(results); err != nil {
			return err
		}
	}
	return ui.Exit(worst)
}

func one(ctx context.Context, s Server, name, node string, e api.ExecRequest) Result {
	var out, errs locked
	e.Stdout, e.Stderr = &out, &errs
	status, err := s.Exec(ctx, name, node, e)
	r := Result{Node: node, Status: status, Stdout: out.String(), Stderr: errs.String()}
	if err != nil {
		r.Status, r.Error = ui.ExitNotRun, err.Error()
	}
	return r
}

// locked is a buffer that may be written from any goroutine.
type locked struct {
	mu sync.Mutex // guards the buffer
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func show(t *ui.Terminal, r *Result, wide int) {
	label := r.Node + strings.Repeat(" ", wide-len(r.Node))
	prefixed(t.Out, t.Paint(t.Styles.Mark, label)+"  ", r.Stdout)
	prefixed(t.Err, label+"  ", r.Stderr)
	switch {
	case r.Error != "":
		prefixed(t.Err, label+"  ", "error: "+r.Error)
	case r.Status != 0:
		prefixed(t.Err, label+"  ", fmt.Sprintf("exit status %d", r.Status))
	}
}

func prefixed(w io.Writer, prefix, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, prefix+strings.TrimRight(line, "\r\n"))
	}
}

func longest(names []string) (n int) {
	for _, name := range names {
		n = max(n, len(name))
	}
	return n
}
