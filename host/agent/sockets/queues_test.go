package sockets

import (
	"errors"
	"testing"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/sliver"
)

func TestQueuesOfANodeThatIsNotHereAreNoEmptyList(t *testing.T) {
	nodes := &fakeNodes{filters: map[string][]string{"east": nil}}
	k := &socket{Owner: Owner{Slice: "lab"}, id: sliver.ID{Slice: 7, Node: "east"}, sockets: &Sockets{nodes: nodes}}
	if _, err := k.queues(t.Context(), "nobody"); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("an unknown node: %v", err)
	}
	if all, err := k.queues(t.Context(), "east"); err != nil || len(all) != 1 {
		t.Errorf("a node without queues: %v, %v", all, err)
	}
}
