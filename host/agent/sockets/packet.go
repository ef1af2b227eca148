package sockets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/sdk/message"
)

// errTooLong is the error of a message that is longer than message.MaxSize. It has been read.
var errTooLong = fmt.Errorf("the message has more than %d bytes", message.MaxSize)

// receive reads one message. It asks for the length first: a connection that waits holds no buffer. File descriptors
// that come with the message are closed by the kernel.
func receive(c *net.UnixConn) (data []byte, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	read := func(buffer []byte, flags int) (n int, err error) {
		again := raw.Read(func(fd uintptr) bool {
			n, _, err = unix.Recvfrom(int(fd), buffer, flags)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		return n, errors.Join(again, err)
	}
	n, err := read(nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	buffer := make([]byte, min(n, message.MaxSize))
	if _, err := read(buffer, 0); err != nil {
		return nil, err
	}
	if n > message.MaxSize {
		return nil, errTooLong
	}
	return buffer, nil
}

// send sends one message, with a file descriptor if there is one.
func send(c *net.UnixConn, a message.Answer, file *os.File) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = c.WriteMsgUnix(data, rights, nil)
	return err
}
