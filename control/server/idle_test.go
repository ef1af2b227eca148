package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

// Between the last client's leaving and the end of the listener others may come: they must not be answered and then
// left alone.
func TestAConnectionAfterTheDecisionToEndIsClosed(t *testing.T) {
	i := newIdle()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.wait(t.Context())
	}()
	_, first := net.Pipe()
	i.connState(first, http.StateNew)
	i.setSlices(1)
	i.setSlices(0)
	if done, busy := i.end(true); done || !busy {
		t.Error("ends though a client is there")
	}
	i.connState(first, http.StateClosed)
	<-ended
	here, late := net.Pipe()
	i.connState(late, http.StateNew)
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a client that comes too late reads %v, want EOF", err)
	}
}
