package speakers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// refusal says why a router's own speaker has not taken a request, by names and units of the topology.
func refusal(err error, r *Router) string {
	var e *rsvp.Refused
	if !errors.As(err, &e) {
		text, _, _ := strings.Cut(err.Error(), "\n") // of a panic, the stack is in the log
		return text
	}
	at := r.Name
	if e.Interface != 0 {
		at += ":" + r.Interfaces[e.Interface].Name
	}
	switch {
	case e.Disallowed:
		return fmt.Sprintf("its affinities do not allow the link at %s", at)
	case e.Cause.Code == message.AdmissionFailure:
		return fmt.Sprintf("%s has %s unreserved at priority %d, of %s that it asks for", at,
			unit.Rate(e.Unreserved*8), e.Request.Attribute.Setup, unit.Rate(e.Request.Bandwidth*8))
	}
	return fmt.Sprintf("%s says: %s", at, message.ErrorText(e.Cause.Code, e.Cause.Value))
}
