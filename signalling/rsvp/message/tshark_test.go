package message_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/signalling/internal/tshark"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

func TestTsharkDecodesEverySample(t *testing.T) {
	all := samples()
	delete(all, inWords) // tshark 4.0 does not know USER_ERROR_SPEC: an unknown object, and not malformed
	names := slices.Sorted(maps.Keys(all))
	var messages [][]byte
	for _, name := range names {
		messages = append(messages, encoded(t, samples()[name]))
	}
	signed, err := samples()["hello"].Sign(message.Key{ID: 1, Secret: []byte("secret")}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	tshark.Check(t, append(names, "signed"), append(messages, signed))
}
