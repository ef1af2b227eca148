package rsvp

import (
	"fmt"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Refused is the error of a request that the router itself refuses, as it refuses a Path of another one.
type Refused struct {
	Request   Request
	Cause     message.ErrorSpec
	Interface int // by which the LSP would leave; 0: none was found
	// Unreserved is what is left there for the request's set-up priority, in bytes a second.
	Unreserved uint64
	Groups     uint32 // administrative groups of the interface
	Disallowed bool   // the request's affinities do not allow them
}

func refused(s *lsp, cause message.ErrorSpec) *Refused {
	e := &Refused{Request: *s.request, Cause: cause}
	if s.out != nil {
		e.Interface, e.Groups, e.Disallowed = s.out.Index, s.out.Groups, !s.path.allowed(s.out)
		e.Unreserved = s.out.unreserved(s.path.priority.Setup)
	}
	return e
}

func (e *Refused) Error() string {
	text := fmt.Sprintf("add %s: %s", e.Request.Key, message.ErrorText(e.Cause.Code, e.Cause.Value))
	switch {
	case e.Disallowed:
		return fmt.Sprintf("%s: its affinities do not allow interface %d, which has administrative groups %#x",
			text, e.Interface, e.Groups)
	case e.Cause.Code == message.AdmissionFailure:
		return fmt.Sprintf("%s at interface %d: %d bytes/s asked for, %d unreserved at priority %d", text,
			e.Interface, e.Request.Bandwidth, e.Unreserved, e.Request.Attribute.Setup)
	}
	return text
}
