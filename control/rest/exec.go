package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

func (s *server) registerExec(mux *http.ServeMux, a huma.API) {
	const path = "/v1/slices/{slice}/nodes/{node}/exec"
	text := &huma.Schema{Type: huma.TypeString}
	list := &huma.Schema{Type: huma.TypeArray, Items: text}
	number := &huma.Schema{Type: huma.TypeInteger}
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "exec", Method: http.MethodGet, Path: path, Summary: "Run a command in a node",
		Description: "A websocket, subprotocol `" + api.ExecProtocol +
			"`. Messages are binary; the first byte says what the rest is. " +
			"To the server: 0 input, 4 size of the terminal ({\"rows\":24,\"cols\":80}), 255 no more " +
			"input. To the client: 1 output, which may be empty, 2 error output, and last 3, " +
			"{\"status\":0} or {\"problem\":{...}}.",
		Parameters: []*huma.Param{
			{Name: "slice", In: "path", Required: true, Schema: text},
			{Name: "node", In: "path", Required: true, Schema: text},
			{Name: "command", In: "query", Required: true, Schema: list,
				Description: "Program and arguments, one each."},
			{Name: "env", In: "query", Schema: list, Description: "NAME=value, beside the node's own."},
			{Name: "dir", In: "query", Schema: text, Description: "Working directory."},
			{Name: "tty", In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean},
				Description: "Run in a pseudo terminal."},
			{Name: "rows", In: "query", Schema: number}, {Name: "cols", In: "query", Schema: number},
		},
		Responses: map[string]*huma.Response{"101": {Description: "The websocket."}},
	})
	mux.HandleFunc("GET "+path, s.exec)
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	name, node, q := r.PathValue("slice"), r.PathValue("node"), r.URL.Query()
	if _, _, err := s.Find.Node(r.Context(), name, node); err != nil {
		writeProblem(w, err)
		return
	}
	req := api.ExecRequest{Command: q["command"], Env: q["env"], Dir: q.Get("dir"), TTY: q.Get("tty") == "true"}
	if len(req.Command) == 0 {
		writeProblem(w, huma.Error422UnprocessableEntity("there is no command to run"))
		return
	}
	req.Size = api.Size{Rows: uint16Of(q.Get("rows")), Cols: uint16Of(q.Get("cols"))}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{api.ExecProtocol}})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = ws.CloseNow() }()
	if ws.Subprotocol() != api.ExecProtocol {
		ws.Close(websocket.StatusPolicyViolation, "the subprotocol is "+api.ExecProtocol)
		return
	}
	ws.SetReadLimit(api.MaxExecMessage)
	s.runExec(r.Context(), ws, name, node, req)
}

// runExec joins a websocket to a command. The command is ended when the client leaves.
func (s *server) runExec(ctx context.Context, ws *websocket.Conn, name, node string, req api.ExecRequest) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stdin, input := io.Pipe()
	resize := make(chan api.Size, 1)
	req.Stdin, req.Resize = stdin, resize
	out := &execWriter{ctx: ctx, ws: ws}
	req.Stdout, req.Stderr = out.channel(api.ExecStdout), out.channel(api.ExecStderr)

	go out.watch(cancel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel() // the client has gone
		defer close(resize)
		receive(ctx, ws, input, resize)
	}()
	status, err := s.Agent.Exec(ctx, name, node, req)
	stdin.Close()
	outcome := api.ExecOutcome{Status: status}
	if err != nil {
		errors.As(problem(fmt.Errorf("run %s in node %s: %w", req.Command[0], node, err)), &outcome.Problem)
	}
	data, err := json.Marshal(outcome)
	if err == nil {
		_ = out.send(api.ExecStatus, data) // the client may have gone
	}
	ws.Close(websocket.StatusNormalClosure, "")
	<-done
}

// receive hands on what the client sends until it leaves.
func receive(ctx context.Context, ws *websocket.Conn, input *io.PipeWriter, resize chan api.Size) {
	defer input.Close()
	for {
		_, message, err := ws.Read(ctx)
		if err != nil {
			return
		}
		if len(message) == 0 {
			continue
		}
		switch message[0] {
		case api.ExecStdin:
			// A command that has closed its input does not want the rest.
			_, _ = input.Write(message[1:])
		case api.ExecClose:
			input.Close()
		case api.ExecResize:
			var size api.Size
			if json.Unmarshal(message[1:], &size) != nil {
				continue
			}
			select { // only the newest size counts
			case <-resize:
			default:
			}
			resize <- size
		}
	}
}

// execWriter sends output as messages.
type execWriter struct {
	ctx context.Context
	ws  *websocket.Conn
	mu  sync.Mutex // one message at a time
}

func (e *execWriter) send(channel byte, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ws.Write(e.ctx, websocket.MessageBinary, append([]byte{channel}, data...))
}

// watch calls gone when the client has left. As long as the command does not take its input, nobody reads from the
// connection and would learn that it has ended; so it is written to, now and then, without effect.
func (e *execWriter) watch(gone func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		if e.send(api.ExecStdout, nil) != nil {
			gone()
			return
		}
	}
}

func (e *execWriter) channel(channel byte) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		const most = 32 << 10
		for sent := 0; sent < len(p); {
			n := min(len(p)-sent, most)
			if err := e.send(channel, p[sent:sent+n]); err != nil {
				return sent, err
			}
			sent += n
		}
		return len(p), nil
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func uint16Of(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}
