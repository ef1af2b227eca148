package rest

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/controller"
)

type callerKey struct{}

// WithPeer is an http.Server's ConnContext: it notes the user at the other end of a unix socket. Which users may
// connect at all is up to the socket's permissions.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	caller, err := peer(c)
	if err != nil {
		return ctx // caller then gives a user without rights
	}
	return context.WithValue(ctx, callerKey{}, caller)
}

func peer(c net.Conn) (controller.Caller, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return controller.Caller{}, fmt.Errorf("%T is not a unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return controller.Caller{}, err
	}
	var cred *unix.Ucred
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return controller.Caller{}, err
	}
	if sockErr != nil {
		return controller.Caller{}, sockErr
	}
	return controller.Caller{UID: cred.Uid, GID: cred.Gid, Root: cred.Uid == 0, Local: true}, nil
}

// caller is the user of a request; a user without rights where that is not known.
func caller(ctx context.Context) controller.Caller {
	if c, ok := ctx.Value(callerKey{}).(controller.Caller); ok {
		return c
	}
	return controller.Caller{UID: ^uint32(0), GID: ^uint32(0)}
}
