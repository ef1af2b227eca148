package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/pergola-net/pergola/control/api"
)

// Exec runs a command in a node and gives its exit status (128 + signal where a signal ended it). A Read of Stdin
// that is under way when the command ends is not waited for.
func (c *Client) Exec(ctx context.Context, slice, node string, e api.ExecRequest) (status int, err error) {
	q := url.Values{"command": e.Command, "env": e.Env, "dir": {e.Dir}, "tty": {strconv.FormatBool(e.TTY)}}
	q.Set("rows", strconv.Itoa(int(e.Size.Rows)))
	q.Set("cols", strconv.Itoa(int(e.Size.Cols)))
	target := base + path("slices", slice, "nodes", node, "exec") + "?" + q.Encode()
	ws, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{ //nolint:bodyclose // never needed
		HTTPClient: c.http, Subprotocols: []string{api.ExecProtocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			return 0, problemOf(resp)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, c.noAnswer(err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(api.MaxExecMessage)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go sendInput(ctx, ws, e.Stdin)
	if e.Resize != nil {
		go sendSizes(ctx, ws, e.Resize)
	}
	outcome, err := receiveOutput(ctx, ws, e)
	if err != nil {
		return 0, err
	}
	ws.Close(websocket.StatusNormalClosure, "")
	if outcome.Problem != nil {
		return 0, outcome.Problem
	}
	return outcome.Status, nil
}

func receiveOutput(ctx context.Context, ws *websocket.Conn, e api.ExecRequest) (outcome api.ExecOutcome, err error) {
	out := map[byte]io.Writer{api.ExecStdout: e.Stdout, api.ExecStderr: e.Stderr}
	for {
		_, message, err := ws.Read(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return outcome, ctx.Err()
			}
			return outcome, fmt.Errorf("wait for the command to end: %w", ErrEnded)
		}
		if len(message) == 0 {
			continue
		}
		if message[0] == api.ExecStatus {
			if err := json.Unmarshal(message[1:], &outcome); err != nil {
				return outcome, fmt.Errorf("decode how the command ended: %w", err)
			}
			return outcome, nil
		}
		if w := out[message[0]]; w != nil {
			if _, err := w.Write(message[1:]); err != nil {
				return outcome, fmt.Errorf("write the command's output: %w", err)
			}
		}
	}
}

// sendInput and sendSizes end when the connection does; then errors do not matter.

func sendInput(ctx context.Context, ws *websocket.Conn, in io.Reader) {
	if in != nil {
		buffer := make([]byte, 1+32<<10)
		buffer[0] = api.ExecStdin
		for {
			n, err := in.Read(buffer[1:])
			if n > 0 && ws.Write(ctx, websocket.MessageBinary, buffer[:1+n]) != nil {
				return
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
		}
	}
	_ = ws.Write(ctx, websocket.MessageBinary, []byte{api.ExecClose})
}

func sendSizes(ctx context.Context, ws *websocket.Conn, sizes <-chan api.Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			data, err := json.Marshal(size)
			if err != nil || ws.Write(ctx, websocket.MessageBinary,
				append([]byte{api.ExecResize}, data...)) != nil {
				return
			}
		}
	}
}
