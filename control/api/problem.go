// Package api has the types of the HTTP API: requests, answers and what streams carry. It is plain data; package rest
// serves it, package client asks for it.
package api

import (
	"errors"
	"fmt"
)

// Types of problems that a client decides on.
const (
	TypeDeleting = "urn:pergola:slice-deleting" // the slice is being removed; its name is free afterwards
)

// ErrNotRunning means that a node has no processes now.
var ErrNotRunning = errors.New("it does not run")

// ErrorTrailer is the HTTP trailer with the reason why a stream of bytes ended early.
const ErrorTrailer = "Pergola-Error"

// Problem is an error as RFC 9457 defines it. Detail is a sentence for a person.
type Problem struct {
	Type   string `json:"type,omitempty" format:"uri" default:"about:blank" doc:"What a client decides on."`
	Title  string `json:"title,omitempty" example:"Bad Request" doc:"The text of the HTTP status."`
	Status int    `json:"status,omitempty" example:"400" doc:"HTTP status code."`
	Detail string `json:"detail,omitempty" doc:"What is wrong and what to do, for a person."`
	// Instance is never set by Pergola.
	Instance string        `json:"instance,omitempty" format:"uri" doc:"This occurrence of the problem."`
	Errors   []ProblemPart `json:"errors,omitempty" doc:"One entry for each fault of a request or a topology."`
}

// ProblemPart is one of several faults of a request.
type ProblemPart struct {
	Message  string `json:"message,omitempty" doc:"What is wrong, for a person."`
	Location string `json:"location,omitempty" doc:"Place in the request, such as body.nodes.denver.memory."`
	Value    any    `json:"value,omitempty" doc:"The value at that place."`
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// Error implements error.
func (p ProblemPart) Error() string {
	if p.Location == "" {
		return p.Message
	}
	return fmt.Sprintf("%s (%s: %v)", p.Message, p.Location, p.Value)
}

// GetStatus gives the HTTP status code.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType gives the media type of a problem that is encoded as ct.
func (p *Problem) ContentType(ct string) string {
	if ct == "application/json" {
		return "application/problem+json"
	}
	return ct
}
