// Package storetest has what tests of stores over a network need: certificates, free ports, and a wire that can be cut.
package storetest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
)

// NewAuthority makes a certificate authority.
func NewAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// Identity makes a key and a certificate for a member. A server's names 127.0.0.1.
func Identity(t *testing.T, authority *pki.Authority, name string, role pki.Role) func() *pki.Identity {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	member := pki.Member{Name: name, Role: role}
	if role == pki.Server {
		member.Hosts = []string{"127.0.0.1"}
	}
	cert, err := authority.Issue(member, key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id := &pki.Identity{Certificate: cert, Key: key, Authority: authority.Certificate}
	return func() *pki.Identity { return id }
}

var addresses sync.Map // that FreeAddress gave to tests of this process

// FreeAddress finds a port of 127.0.0.1 below those that Linux gives to connections: a server that is away for a while
// finds it free again.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if _, taken := addresses.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Wire is a TCP proxy between an agent and a server that can be cut.
type Wire struct {
	net.Listener
	target string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// NewWire makes a wire to an address; its own is Addr.
func NewWire(t *testing.T, target string) *Wire {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Listener: l, target: target}
	t.Cleanup(func() { l.Close(); w.Cut(true) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.pass(c)
		}
	}()
	return w
}

// URL is the address of an etcd client that connects through the wire.
func (w *Wire) URL() string { return "https://" + w.Addr().String() }

func (w *Wire) pass(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	up, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.target)
	if err != nil {
		w.mu.Unlock()
		return
	}
	w.conns = append(w.conns, c, up)
	w.mu.Unlock()
	go func() { _, _ = io.Copy(up, c); up.Close() }()
	_, _ = io.Copy(c, up)
}

// Cut cuts or mends the wire. Connections that are open end in both cases.
func (w *Wire) Cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}
