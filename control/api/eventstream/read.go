// Package eventstream reads the streams of server-sent events that the API answers with.
package eventstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tmaxmax/go-sse"

	"github.com/pergola-net/pergola/control/api"
)

// ProblemEvent is the name of the event that ends a stream early. Its data is an api.Problem.
const ProblemEvent = "problem"

// maxEvent bounds one event, in bytes: the progress of the largest slice fits.
const maxEvent = 64 << 20

// Read calls each with the name and the data of every event, until the stream ends or each returns an error, which
// Read returns. An event "problem" is returned as an *api.Problem. A connection that ends within an event ends the
// stream.
func Read(stream io.Reader, each func(event string, data []byte) error) error {
	for event, err := range sse.Read(stream, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the server's answer: %w", err)
		case event.Type == ProblemEvent:
			p := new(api.Problem)
			if err := json.Unmarshal([]byte(event.Data), p); err != nil {
				return fmt.Errorf("decode the server's answer: %w", err)
			}
			return p
		}
		if err := each(event.Type, []byte(event.Data)); err != nil {
			return err
		}
	}
	return nil
}
