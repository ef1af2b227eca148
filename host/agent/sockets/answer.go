package sockets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/tap"
	"github.com/pergola-net/pergola/sdk/message"
)

// answer is one message of an answer. The file belongs to it until it is sent.
type answer struct {
	message.Answer
	file *os.File
}

func closeFiles(all []answer) {
	for _, a := range all {
		if a.file != nil {
			_ = a.file.Close()
		}
	}
}

// requestError is the error of a request that makes no sense.
type requestError struct{ text, advice string }

func (e *requestError) Error() string { return e.text }

// parse reads a request out of a message, or says what is wrong with it, such as that it could not be read. Then it is
// nothing but the request's number, as far as that is known.
func parse(data []byte, unread error) (r message.Request, err error) {
	if unread != nil {
		return r, &requestError{unread.Error(), "send filters in several requests"}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return message.Request{}, &requestError{
			"this is no request: " + err.Error(), "send one JSON object a message",
		}
	}
	if d.More() {
		err = &requestError{"more follows behind the request", "send one JSON object a message"}
	} else {
		err = takes(r)
	}
	if err != nil {
		return message.Request{ID: r.ID}, err
	}
	return r, nil
}

// answer answers a request, or says what is wrong with it: in one message or more.
func (k *socket) answer(r message.Request, bad error) []answer {
	if bad != nil {
		return refusal(r.ID, bad)
	}
	all, err := k.do(k.ctx, r)
	if err != nil {
		closeFiles(all)
		return refusal(r.ID, err)
	}
	for i := range all {
		all[i].ID, all[i].More = r.ID, i+1 < len(all)
	}
	return all
}

// codes are those of the HTTP statuses of what is wrong with filters, queues and reservations.
var codes = map[int]message.Code{
	http.StatusUnprocessableEntity: message.Invalid,
	http.StatusNotFound:            message.Missing,
	http.StatusConflict:            message.Exists,
	http.StatusInsufficientStorage: message.Full,
	http.StatusForbidden:           message.Forbidden,
}

func refusal(id uint64, err error) []answer {
	a := message.Answer{ID: id, Error: err.Error(), Code: message.Failed}
	var bad *requestError
	var problem *api.Problem
	var taken *takenError
	switch {
	case errors.As(err, &bad):
		a.Code, a.Advice = message.Invalid, bad.advice
	case errors.As(err, &taken):
		a.Code, a.Error = message.Busy, taken.Detail
	case errors.As(err, &problem) && codes[problem.Status] != "":
		a.Code, a.Error = codes[problem.Status], problem.Detail
	case errors.Is(err, tap.ErrBusy):
		a.Code, a.Advice = message.Busy, "a node's slow path is one process's: end the other one"
	case errors.Is(err, api.ErrNotRunning):
		a.Code = message.NotRunning
	}
	return []answer{{Answer: a}}
}

// do does what a request asks for.
func (k *socket) do(ctx context.Context, r message.Request) ([]answer, error) {
	node := r.Node
	if node == "" {
		node = k.id.Node
	}
	nodes := k.sockets.nodes
	if !nodes.IsSlice(k.id.Slice, k.Slice) { // another one has the name by now
		return nil, fmt.Errorf("network %s: %w", k.Slice, api.ErrNotRunning)
	}
	switch r.Do {
	case message.DoHello:
		return k.hello(ctx, node)
	case message.DoCounters:
		p, err := k.program(ctx, node)
		return one(message.Counters{Counters: p.Counters, Platform: p.Platform}, err)
	case message.DoMemory:
		return k.memory(ctx, node)
	case message.DoQueues:
		return k.queues(ctx, node)
	case message.DoSlowPath:
		return k.slowPath(ctx, node)
	case message.DoFilters:
		return k.filters(ctx, node)
	case message.DoChangeFilters:
		return one(struct{}{}, nodes.ChangeFilters(ctx, k.Slice, node,
			api.FilterChange{Delete: r.Delete, Insert: r.Insert}))
	case message.DoReplaceFilters:
		return one(struct{}{}, nodes.ReplaceFilters(ctx, k.Slice, node, r.Insert))
	case message.DoSetQueues:
		return k.setQueues(ctx, node, r)
	case message.DoReserve, message.DoRelease:
		return k.reserve(ctx, node, r)
	case message.DoReservations:
		return k.reservations(node)
	case "":
		return nil, &requestError{`the request does not say what to do`, `such as {"id": 1, "do": "hello"}`}
	default:
		return nil, &requestError{fmt.Sprintf("there is no request %q", r.Do), "see docs/slowpath.md"}
	}
}

// one is an answer of one message.
func one(value any, err error) ([]answer, error) {
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	return []answer{{Answer: message.Answer{OK: data}}}, err
}

// program gives a node's program.
func (k *socket) program(ctx context.Context, node string) (api.NodeProgram, error) {
	all, err := k.sockets.nodes.Programs(ctx, k.Slice, node)
	if err != nil {
		return api.NodeProgram{}, err
	}
	if len(all) == 0 {
		return api.NodeProgram{}, fmt.Errorf("network %s has no node %s with a packet program on this host: %w",
			k.Slice, node, api.ErrNotRunning)
	}
	return all[0], nil
}

func (k *socket) hello(ctx context.Context, node string) ([]answer, error) {
	p, err := k.program(ctx, node)
	return one(message.Hello{
		Version: message.Version, Slice: k.Slice, Node: node, Program: p.Program, State: string(p.State),
		Interfaces: p.Interfaces,
	}, err)
}

func (k *socket) memory(ctx context.Context, node string) ([]answer, error) {
	file, m, err := k.sockets.nodes.ProgramMemory(ctx, k.Slice, node)
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, &requestError{"the packet program of " + node + " declares no memory",
			"declare it with PERGOLA_MEMORY(type, count)"}
	}
	const word = 8
	stride := (m.Element + word - 1) / word * word
	all, err := one(message.Memory{Element: m.Element, Stride: stride, Count: m.Count, Number: m.Number}, nil)
	all[0].file = file
	return all, err
}

func (k *socket) slowPath(ctx context.Context, node string) ([]answer, error) {
	file, err := k.sockets.nodes.OpenSlowPath(ctx, k.Slice, node)
	if errors.Is(err, wire.ErrNoSlowPath) {
		return nil, &requestError{err.Error(), "write slowpath: socket in the topology"}
	}
	if err != nil {
		return nil, err
	}
	all, err := one(message.SlowPath{Version: message.SlowVersion, Header: message.SlowHeader}, nil)
	all[0].file = file
	return all, err
}

func (k *socket) queues(ctx context.Context, node string) ([]answer, error) {
	have, err := k.sockets.nodes.NodeQueues(ctx, k.Slice, node)
	if err == nil && len(have) == 0 { // it has none, or it is not here
		_, err = k.program(ctx, node)
	}
	if err != nil {
		return nil, err
	}
	list := make([]message.Queue, len(have))
	for i, q := range have {
		list[i] = message.Queue{
			Interface: strings.TrimPrefix(q.From, node+":"), Queue: q.Class,
			Frames: q.Sent.Frames, Bytes: q.Sent.Bytes, Dropped: q.Dropped,
			Waiting: q.Backlog.Frames, WaitingBytes: q.Backlog.Bytes,
		}
	}
	const longest = 256 // bytes of one in JSON
	var all []answer
	for part := range slices.Chunk(list, message.MaxSize/2/longest) {
		more, err := one(message.Queues{Queues: part}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	if len(all) == 0 {
		return one(message.Queues{Queues: []message.Queue{}}, nil)
	}
	return all, nil
}

// filters lists filters in as many messages as they need.
func (k *socket) filters(ctx context.Context, node string) ([]answer, error) {
	have, err := k.sockets.nodes.Filters(ctx, k.Slice, node)
	if err != nil {
		return nil, err
	}
	part := message.Filters{Key: []message.KeyField{}, Filters: []message.Filter{}}
	for _, f := range have.Key {
		part.Key = append(part.Key, message.KeyField(f))
	}
	var all []answer
	size := 0
	for i, f := range have.Filters {
		part.Filters = append(part.Filters, message.Filter(f))
		const others = 160 // bytes: names and numbers of a filter; text may be twice as long in JSON
		size += others + 2*(len(f.Match)+len(f.Result))
		if size < message.MaxSize/2 || i+1 == len(have.Filters) {
			continue
		}
		more, err := one(part, nil)
		if err != nil {
			return nil, err
		}
		all, part, size = append(all, more...), message.Filters{Filters: []message.Filter{}}, 0
	}
	last, err := one(part, nil)
	return append(all, last...), err
}
