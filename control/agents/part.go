package agents

import (
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// known is what a server told of a slice.
type known struct {
	ETag string `json:"etag"` // of the answer
	Part part   `json:"part"`

	spec    *slice.Slice // joined of the part; nil where nothing is wanted, or it cannot be read
	corrupt error
}

// join puts the slice together.
func (k *known) join() error {
	k.Part.Record.Corrupt = isCorrupt(&k.Part.Record)
	if k.Part.Corrupt != "" {
		k.corrupt = &answerError{k.Part.Corrupt, store.ErrCorrupt}
		return nil
	}
	if len(k.Part.Outline) == 0 {
		return nil
	}
	spec, excerpt := new(slice.Slice), new(slice.Slice)
	err := errors.Join(record.Unpack(k.Part.Outline, spec), record.Unpack(k.Part.Excerpt, excerpt))
	if err != nil {
		return fmt.Errorf("decode what a server told of network %s: %w", k.Part.Record.Name, err)
	}
	spec.Join(excerpt)
	r := &k.Part.Record
	spec.Name, spec.ID, spec.Generation = r.Name, r.ID, r.Generation
	k.spec = spec
	return nil
}

func (k *known) slice() (*slice.Slice, store.Record, error) {
	switch {
	case k.corrupt != nil:
		return nil, k.Part.Record, k.corrupt
	case k.spec == nil:
		return k.Part.Record.NameOnly(), k.Part.Record, nil
	}
	return k.spec, k.Part.Record, nil
}
