// Package testkit holds what the tests of all packages share: gates for what a test needs, leak checks, and waiting.
//
// A gate never hides a regression. On a laptop, a test that needs root or a part of the kernel that is absent is
// skipped and says why. In CI (environment variable CI set) the same skip is a failure, unless test/vm/tests.txt lists
// the test: then the vm tier runs it on a kernel that has everything, and inside that tier no gate skips at all.
package testkit

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// InVM reports whether the test runs inside the vm tier.
func InVM() bool { return os.Getenv("PERGOLA_TEST_VM") != "" }

func inCI() bool { return os.Getenv("CI") != "" }

// Root skips the test when the caller is not root; in CI it fails.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if inCI() {
		t.Fatal("needs root, and CI must not skip")
	}
	t.Skip("needs root")
}

// UserNamespaces skips the test where the kernel lets nobody make user namespaces, as in a chroot
// (user_namespaces(7)); in CI it fails.
func UserNamespaces(t testing.TB) {
	t.Helper()
	err := exec.CommandContext(t.Context(), "unshare", "--user", "true").Run()
	switch {
	case err == nil:
	case inCI():
		t.Fatalf("needs user namespaces, and CI must not skip: %v", err)
	default:
		t.Skipf("nobody makes user namespaces here, as in a chroot: %v", err)
	}
}

// KernelModule skips the test when the running kernel has no such part (sch_netem, say), neither built in nor as a
// module that can be loaded. In CI that is a failure unless the vm tier runs the test.
func KernelModule(t testing.TB, name string) {
	t.Helper()
	if err := loadModule(t.Context(), name); err != nil {
		VM(t, err.Error())
	}
}

// VM skips the test, which can only be run by the vm tier for the reason given. In CI that is a failure unless the vm
// tier's list has the test; inside the vm tier it always is.
func VM(t testing.TB, reason string) {
	t.Helper()
	if InVM() {
		t.Fatalf("the vm tier must run this test: %s", reason)
	}
	if !inCI() {
		t.Skip(reason)
	}
	listed, err := listedForVM(t.Name())
	switch {
	case err != nil:
		t.Fatalf("read the vm tier's list: %v", err)
	case !listed:
		t.Fatalf("%s: CI must not skip; list the test in test/vm/tests.txt", reason)
	}
	t.Skipf("%s: left to the vm tier", reason)
}

// OnlyInVM marks a test that has its only place in the vm tier, such as one for an older kernel's interface.
func OnlyInVM(t testing.TB, reason string) {
	t.Helper()
	if !InVM() {
		VM(t, reason)
	}
}

// listedForVM reports whether test/vm/tests.txt has the test of the package in whose directory we run.
func listedForVM(test string) (bool, error) {
	dir, err := os.Getwd()
	if err != nil {
		return false, err
	}
	root, err := moduleRoot(dir)
	if err != nil {
		return false, err
	}
	pkg, err := filepath.Rel(root, dir)
	if err != nil {
		return false, err
	}
	f, err := os.Open(filepath.Join(root, "test", "vm", "tests.txt"))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	top, _, _ := strings.Cut(test, "/")
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(line); len(words) == 2 && words[0] == pkg && words[1] == top {
			return true, nil
		}
	}
	return false, nil
}

// ModuleRoot is the directory of this source tree.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err == nil {
		dir, err = moduleRoot(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func moduleRoot(dir string) (string, error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find go.mod above %s: %w", dir, os.ErrNotExist)
		}
	}
}
