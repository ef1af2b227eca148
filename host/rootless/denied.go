package rootless

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// DeniedError says that the machine lets users make no namespaces. It has the remedy, for the administrator.
type DeniedError struct {
	Cause  error
	Remedy string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("make a user namespace: %v: this machine lets ordinary users make none, or do nothing there",
		e.Cause)
}

func (e *DeniedError) Unwrap() error { return e.Cause }

// settings by which machines deny namespaces to users, the value that allows them, and where they are.
var settings = []struct{ file, denies, name, allows string }{
	{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces", "15000"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone", "1"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns",
		"0"},
}

func denied(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EACCES) &&
		!errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("make namespaces: %w", err)
	}
	for _, s := range settings {
		text, readErr := os.ReadFile(s.file)
		if readErr == nil && strings.TrimSpace(string(text)) == s.denies {
			return &DeniedError{err, "an administrator allows it by: sysctl -w " + s.name + "=" + s.allows}
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return &DeniedError{err, "the kernel was built without them (CONFIG_USER_NS)"}
	}
	return &DeniedError{err, "this process may be in a chroot, or in a container whose seccomp or AppArmor " +
		"profile denies them (Docker: --security-opt seccomp=unconfined --security-opt " +
		"apparmor=unconfined --security-opt systempaths=unconfined)"}
}
