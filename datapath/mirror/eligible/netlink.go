package eligible

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// listen opens a socket that receives the announcements of a source.
func (s *source) listen() (*rtnl.Conn, error) {
	c, err := rtnl.Open(s.protocol)
	if err != nil {
		return nil, err
	}
	if err := c.SetReceiveBuffer(16 << 10); err != nil { // one announcement says as much as a thousand
		_ = c.Close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	if err := c.Join(s.groups...); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// attributes calls f for each attribute behind a header of so many bytes. A value that has not the size that f asks
// for is an error, too: the fast path is only for what is understood.
func attributes(data []byte, header int, f func(*rtnl.Attrs)) error {
	if len(data) < header {
		return fmt.Errorf("read netlink message: %w", unix.EBADMSG)
	}
	a := rtnl.Attributes(data[header:])
	for a.Next() {
		f(&a)
	}
	if err := a.Err(); err != nil {
		return fmt.Errorf("read netlink attributes: %w", err)
	}
	return nil
}
