package frr

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
)

// mostAnswer is how many bytes a daemon may answer.
const mostAnswer = 4 << 20

// Ask has a daemon carry out commands, by a connection to its socket, DAEMON.vty, and gives the answer to the last one.
// The protocol is that of vtysh: a command ends with a zero byte, an answer with three and a status.
func Ask(c net.Conn, commands ...string) (answer string, err error) {
	in := bufio.NewReader(c)
	for _, command := range commands {
		if _, err := c.Write(append([]byte(command), 0)); err != nil {
			return "", fmt.Errorf("ask for %q: %w", command, err)
		}
		if answer, err = read(in); err != nil {
			return "", fmt.Errorf("read the answer to %q: %w", command, err)
		}
	}
	return answer, nil
}

func read(in *bufio.Reader) (string, error) {
	var text strings.Builder
	for zeros := 0; ; {
		b, err := in.ReadByte()
		switch {
		case err != nil:
			return "", err
		case zeros == 3: // the status
			return text.String(), nil
		case b == 0:
			zeros++
		case text.Len() >= mostAnswer:
			return "", errors.New("it is too long")
		default:
			zeros = 0
			text.WriteByte(b)
		}
	}
}
