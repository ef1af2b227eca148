package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/store"
)

// Types of problems that a client decides on.
const (
	TypeGoing = "urn:pergola:slice-going" // the slice is being removed; its name is free afterwards
)

// problem words an error for the client.
func problem(err error) error {
	if err == nil {
		return nil
	}
	var known huma.StatusError
	if errors.As(err, &known) {
		return known
	}
	p := &Problem{Status: statusOf(err), Detail: err.Error()}
	var refusal *controller.Refusal
	if errors.As(err, &refusal) {
		for _, f := range refusal.Faults {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: f.Message, Location: f.Location})
		}
	}
	if errors.Is(err, store.ErrGoing) {
		p.Type = TypeGoing
	}
	p.Title = http.StatusText(p.Status)
	return p
}

func statusOf(err error) int {
	var refusal *controller.Refusal
	if errors.As(err, &refusal) {
		switch refusal.Reason {
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
		}
	}
	for _, known := range []struct {
		err    error
		status int
	}{
		{store.ErrNotFound, http.StatusNotFound},
		{store.ErrGoing, http.StatusConflict},
		{store.ErrConflict, http.StatusConflict},
		{ErrNotRunning, http.StatusConflict},
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
		{store.ErrSilent, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{context.Canceled, http.StatusServiceUnavailable}, // the server is ending
	} {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return http.StatusInternalServerError
}

// writeProblem answers with a problem outside of huma.
func writeProblem(w http.ResponseWriter, err error) {
	var p *Problem
	if !errors.As(problem(err), &p) {
		p = &Problem{Status: http.StatusInternalServerError, Title: "Internal Server Error", Detail: err.Error()}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone
}
