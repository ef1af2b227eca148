package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/store"
)

func init() {
	huma.NewError = newProblem // also in the description of the API
}

// newProblem is huma.NewError. A single error that is a problem already stays as it is.
func newProblem(status int, detail string, errs ...error) huma.StatusError {
	p := &api.Problem{Status: status, Title: http.StatusText(status), Detail: detail}
	if len(errs) == 1 && errors.As(errs[0], &p) {
		return p
	}
	for _, err := range errs {
		part := api.ProblemPart{}
		var detailed huma.ErrorDetailer
		if errors.As(err, &detailed) {
			d := detailed.ErrorDetail()
			part = api.ProblemPart{Message: d.Message, Location: d.Location, Value: d.Value}
		} else if err != nil {
			part.Message = err.Error()
		}
		p.Errors = append(p.Errors, part)
	}
	return p
}

// problem makes an error a problem for the client.
func problem(err error) error { return Problem(err) }

// Problem gives what is wrong as the API's clients get it, an *api.Problem; nil for nil.
func Problem(err error) error {
	if err == nil {
		return nil
	}
	var known huma.StatusError
	if errors.As(err, &known) {
		return known
	}
	p := &api.Problem{Status: statusOf(err), Detail: err.Error()}
	var refusal *controller.Refusal
	if errors.As(err, &refusal) {
		for _, f := range refusal.Faults {
			p.Errors = append(p.Errors, api.ProblemPart{Message: f.Message, Location: f.Location})
		}
	}
	if errors.Is(err, store.ErrDeleting) {
		p.Type = api.TypeDeleting
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// statuses are the HTTP statuses of errors. Of an error that wraps several of these, the first one counts.
var statuses = []struct {
	err    error
	status int
}{
	{store.ErrNotFound, http.StatusNotFound},
	{store.ErrDeleting, http.StatusConflict},
	{store.ErrConflict, http.StatusConflict},
	{api.ErrNotRunning, http.StatusConflict},
	{store.ErrFull, http.StatusInsufficientStorage},
	{blob.ErrFull, http.StatusInsufficientStorage},
	{blob.ErrSize, http.StatusRequestEntityTooLarge},
	{blob.ErrDigest, http.StatusUnprocessableEntity},
	{blob.ErrName, http.StatusUnprocessableEntity},
	{errLost, http.StatusBadGateway},
	{store.ErrNoGrant, http.StatusNotFound},
	{store.ErrNoHost, http.StatusNotFound},
	{store.ErrHostAlive, http.StatusConflict},
	{store.ErrNameTaken, http.StatusConflict},
	{store.ErrNoQuorum, http.StatusServiceUnavailable},
	{store.ErrUnreachable, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusGatewayTimeout},
	{context.Canceled, http.StatusServiceUnavailable}, // the server is ending
}

// statusOf gives the HTTP status of an error.
func statusOf(err error) int {
	var refusal *controller.Refusal
	if errors.As(err, &refusal) {
		return statusOfReason(refusal.Reason)
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return http.StatusInternalServerError
}

func statusOfReason(r controller.Reason) int {
	switch r {
	case controller.Invalid:
		return http.StatusUnprocessableEntity
	case controller.NotFound:
		return http.StatusNotFound
	case controller.Forbidden:
		return http.StatusForbidden
	case controller.Conflict:
		return http.StatusConflict
	case controller.Unsupported:
		return http.StatusNotImplemented
	case controller.Full:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// ReadAnswer reads what another machine answers. An answer that is an error is an *api.Problem, if it says what is
// wrong. The caller closes its body.
func ReadAnswer(resp *http.Response, out any) error {
	if resp.StatusCode < http.StatusBadRequest {
		return json.NewDecoder(resp.Body).Decode(out)
	}
	p := new(api.Problem)
	if err := json.NewDecoder(resp.Body).Decode(p); err != nil || p.Detail == "" {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return p
}

// writeProblem answers with a problem outside of huma.
func writeProblem(w http.ResponseWriter, err error) {
	var p *api.Problem
	if !errors.As(problem(err), &p) {
		p = &api.Problem{Status: http.StatusInternalServerError, Title: "Internal Server Error",
			Detail: err.Error()}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone
}
