package mirror

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// refusal is why the kernel does not answer a request for a dump (NLMSG_ERROR). A kernel without IPv6 or without
// next-hop objects refuses to list them, which is no error: there are none.
func refusal(m rtnl.Message) error {
	if len(m.Data) < 4 {
		return rtnl.ErrMalformed
	}
	no := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
	if no == unix.EOPNOTSUPP || no == unix.EAFNOSUPPORT {
		return nil
	}
	return no
}
