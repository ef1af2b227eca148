package server

import (
	"context"
	"net"
	"os"
)

// supervisor is the process that started the server and waits until it is ready: systemd, or a client's EnsureServer.
// The protocol is that of sd_notify(3).
type supervisor struct{ conn net.Conn }

// takeSupervisor connects to the supervisor, if there is one, and hides it from child processes: an OCI runtime
// that finds NOTIFY_SOCKET would make the node's first process wait for it.
func takeSupervisor(ctx context.Context) *supervisor {
	address := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET")
	if address == "" {
		return &supervisor{}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", address)
	if err != nil { // the supervisor has stopped waiting
		return &supervisor{}
	}
	return &supervisor{conn}
}

func (s *supervisor) notify(state string) {
	if s.conn != nil {
		_, _ = s.conn.Write([]byte(state)) // the supervisor may have stopped listening
	}
}

func (s *supervisor) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}
