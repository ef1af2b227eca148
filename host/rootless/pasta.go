package rootless

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The user's network namespace reaches the machine's network by pasta(1), where that is there: a process of the user's,
// which makes a tap device inside, and outside an ordinary socket for each connection. It is found again by its file,
// which names the holder whose namespace it serves.

func pastaIn(dir string) string { return filepath.Join(dir, "pasta") }

// connect starts a pasta for a holder, unless one serves it. What fails is no error: Connected says that inside.
func connect(ctx context.Context, dir string, h held) {
	if _, serves := readPasta(dir, h.pid); serves {
		return
	}
	disconnect(dir)
	program, err := exec.LookPath("pasta")
	if err != nil {
		return
	}
	pids := pastaIn(dir) + ".pid"
	defer os.Remove(pids)
	// No port leads in, and none out to the machine's own loopback addresses, where services trust who comes.
	c := exec.CommandContext(ctx, program, "--config-net", "--no-map-gw", "--tcp-ports", "none", "--udp-ports",
		"none", "--tcp-ns", "none", "--udp-ns", "none", "--pid", pids, strconv.Itoa(h.pid))
	c.Dir = "/"
	if c.Run() != nil { // it goes to the background when it is ready
		return
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return
	}
	begun, err := startOf(pid)
	if err == nil {
		err = os.WriteFile(pastaIn(dir), fmt.Appendf(nil, "%d %s %d\n", pid, begun, h.pid), 0o600)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
}

// readPasta gives the pasta of a directory that lives; serves is false where it is another holder's.
func readPasta(dir string, holder int) (pid int, serves bool) {
	text, err := os.ReadFile(pastaIn(dir))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 3 {
		return 0, false
	}
	if pid, err = strconv.Atoi(fields[0]); err != nil {
		return 0, false
	}
	if begun, err := startOf(pid); err != nil || begun != fields[1] {
		return 0, false
	}
	return pid, fields[2] == strconv.Itoa(holder)
}

// disconnect ends the pasta of a directory.
func disconnect(dir string) {
	if pid, _ := readPasta(dir, 0); pid != 0 {
		_ = unix.Kill(pid, unix.SIGTERM) // else it has ended
	}
	_ = os.Remove(pastaIn(dir))
}

// Connected says, as an error, why there is no way from the namespaces to the machine's network; nil: there is one.
func Connected() error {
	for _, address := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // of documentation: RFC 5737, RFC 3849
		c, err := net.Dial("udp", address) //nolint:noctx // UDP: nothing is sent
		if err == nil {
			return c.Close()
		}
	}
	if _, err := exec.LookPath("pasta"); err != nil {
		return errors.New("it takes pasta, of the package passt, which is not installed")
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("pasta needs /dev/net/tun: %w", err)
	}
	return errors.Join(errors.New("pasta does not run, or this machine has no default route"), tun.Close())
}
