package eventstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pergola-net/pergola/control/api"
)

func read(t *testing.T, stream io.Reader) (events []string, err error) {
	t.Helper()
	err = Read(stream, func(event string, data []byte) error {
		events = append(events, event+" "+string(data))
		return nil
	})
	return events, err
}

func TestReadGivesEventsAndTheProblemThatEndsThem(t *testing.T) {
	events, err := read(t, strings.NewReader("event: progress\ndata: {\"done\":1}\n\nevent: problem\ndata: "+
		"{\"status\":404,\"detail\":\"gone\"}\n\n"))
	if len(events) != 1 || events[0] != `progress {"done":1}` {
		t.Errorf("events %q", events)
	}
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != 404 || p.Detail != "gone" {
		t.Errorf("error %v, want the problem", err)
	}
}

func TestReadEndsWithTheConnection(t *testing.T) {
	whole := "event: event\ndata: {}\n\n"
	for name, stream := range map[string]io.Reader{
		"at the end of an event": strings.NewReader(whole),
		"within an event": io.MultiReader(strings.NewReader(whole+"event: eve"),
			iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		if events, err := read(t, stream); err != nil || len(events) != 1 {
			t.Errorf("%s: events %q, error %v", name, events, err)
		}
	}
	broken := errors.New("broken")
	if _, err := read(t, io.MultiReader(strings.NewReader(whole), iotest.ErrReader(broken))); !errors.Is(
		err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestReadGivesAnEventBeforeTheNextOneComes(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("event: event\ndata: {}\n\n")) }()
	enough := errors.New("enough")
	err := Read(r, func(string, []byte) error { return enough }) // the stream stays open
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want what the callback returned", err)
	}
}
