package sliver

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// answerWith answers each connection with a text.
func answerWith(l *net.UnixListener, text string) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(text))
		_ = c.Close()
	}
}

func TestASliverReachesItsControlSocketAndNoOther(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Socket = true
	id, _ := up(t, r, s)
	other := spec("houston")
	other.Socket = true
	otherID, _ := up(t, r, other)
	const dial = `python3 -c '
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("/run/pergola/node.sock")
print(s.recv(100).decode())'`
	for _, text := range []string{"first", "after a restart of the agent"} {
		for who, is := range map[string]ID{"denver": id, "houston": otherID} {
			l, err := r.Listen(is)
			if err != nil {
				t.Fatal(err)
			}
			go answerWith(l, text+" to "+who)
			if got := sh(t, r, is, dial); got != text+" to "+who {
				t.Errorf("%s: inside: %q", text, got)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	const spoil = `ls /run/pergola
rm /run/pergola/node.sock || echo refused; echo x >/run/pergola/new || echo refused
mv /run/pergola /run/gone || echo refused; mount -o remount,rw /run/pergola || echo refused`
	want := "node.sock\nrefused\nrefused\nrefused\nrefused"
	if got := sh(t, r, id, "{ "+spoil+"; } 2>/dev/null"); strings.TrimSpace(got) != want {
		t.Errorf("inside: %q", got)
	}
	// Not for other users of the sliver.
	if got := sh(t, r, id, "setpriv --reuid 1000 --clear-groups "+dial+" 2>&1 | tail -1"); !strings.HasPrefix(got,
		"PermissionError") {
		t.Errorf("another user: %q", got)
	}
	plain, _ := up(t, r, spec("elpaso"))
	if _, err := r.Listen(plain); !errors.Is(err, ErrNoSocket) {
		t.Errorf("a sliver without a socket: %v", err)
	}
	if err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if exists(r.socketDir(id)) {
		t.Errorf("%s is left", r.socketDir(id))
	}
}
