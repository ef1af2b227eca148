// Command leftovers runs a command and fails if, in CI, anything is left on the machine that was not there before:
// processes, namespaces, mounts, interfaces, cgroups and BPF objects. It is for tests that run side by side and so
// cannot tell each other's cgroups and BPF objects from their own.
//
//	leftovers COMMAND ARG...
//
// Under sudo, the command runs as the user that called sudo.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/pergola-net/pergola/lab/testkit"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: leftovers COMMAND ARG...")
		os.Exit(2)
	}
	// The terminal interrupts the command as well. Stay, to report what it leaves.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	os.Exit(testkit.Guard(run))
}

func run() int {
	cmd := exec.CommandContext(context.Background(), os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "PERGOLA_TEST_SHARED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: caller()}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", os.Args[1], err)
		return 1
	}
	return 0
}

// caller is the user that called sudo; without sudo it is nil.
func caller() *syscall.Credential {
	uid, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	if err != nil {
		return nil
	}
	gid, err := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if err != nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
