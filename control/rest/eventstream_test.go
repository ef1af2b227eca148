package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/api/eventstream"
)

type countInput struct {
	Refused bool `query:"refused"`
}

func (in *countInput) Resolve(huma.Context) []error {
	if in.Refused {
		return refusal(huma.Error404NotFound("there is nothing to count"))
	}
	return nil
}

// counting serves a stream of one event, which then fails.
func counting(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	registerEvents(&server{}, newAPI(mux), huma.Operation{OperationID: "count", Method: http.MethodGet,
		Path: "/count"}, map[string]any{"progress": api.CheckProgress{}},
		func(_ context.Context, _ *countInput, send sse.Sender) error {
			if err := send.Data(api.CheckProgress{Done: 1, Total: 2}); err != nil {
				return err
			}
			return errors.New("lost count")
		})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestAStreamThatFailsEndsWithAProblem(t *testing.T) {
	resp, err := http.Get(counting(t).URL + "/count")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for header, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store"} {
		if got := resp.Header.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	var got []api.CheckProgress
	err = eventstream.Read(resp.Body, func(event string, data []byte) error {
		var p api.CheckProgress
		if event == "progress" {
			err = json.Unmarshal(data, &p)
		}
		got = append(got, p)
		return err
	})
	if len(got) != 1 || got[0] != (api.CheckProgress{Done: 1, Total: 2}) {
		t.Errorf("events %+v", got)
	}
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusInternalServerError || p.Detail != "lost count" {
		t.Errorf("the stream ends with %v, want the problem", err)
	}
}

func TestAStreamIsRefusedWithAStatusOfItsOwn(t *testing.T) {
	resp, err := http.Get(counting(t).URL + "/count?refused=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p api.Problem
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want := "there is nothing to count"
	if resp.StatusCode != http.StatusNotFound || p.Status != http.StatusNotFound || p.Detail != want ||
		len(p.Errors) > 0 {
		t.Errorf("status %d, problem %+v", resp.StatusCode, p)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %s", got)
	}
}

func TestAStreamAnswersBeforeItsFirstEvent(t *testing.T) {
	mux, connected := http.NewServeMux(), make(chan struct{})
	registerEvents(&server{}, newAPI(mux), huma.Operation{OperationID: "wait", Method: http.MethodGet,
		Path: "/wait"}, map[string]any{"progress": api.CheckProgress{}},
		func(ctx context.Context, _ *struct{}, send sse.Sender) error {
			select {
			case <-connected:
				return send.Data(api.CheckProgress{Done: 1})
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	web := httptest.NewServer(mux)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL+"/wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("no answer before the first event: %v", err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Errorf("status %d, content type %s", resp.StatusCode, got)
	}
	close(connected)
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"done":1`) {
		t.Errorf("%q, %v", text, err)
	}
}
