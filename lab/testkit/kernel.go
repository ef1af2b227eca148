package testkit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// options maps modules to the kernel's build option where lower case and the usual prefixes do not give it.
var options = map[string]string{
	"cls_bpf": "NET_CLS_BPF",
	"ip_gre":  "NET_IPGRE",
	"overlay": "OVERLAY_FS",
	"8021q":   "VLAN_8021Q",
	"vrf":     "NET_VRF",
}

// HasModule reports whether the running kernel has such a part, and loads it where it is a module.
func HasModule(ctx context.Context, name string) bool { return loadModule(ctx, name) == nil }

// loadModule makes the module's feature available, or gives the reason why it is not.
func loadModule(ctx context.Context, name string) error {
	if _, err := os.Stat(filepath.Join("/sys/module", name)); err == nil {
		return nil
	}
	if builtIn(name) {
		return nil
	}
	out, err := exec.CommandContext(ctx, "modprobe", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("this kernel has no %s (modprobe: %w: %s)", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// builtIn asks the running kernel's own configuration, and where that is not shown, the list that its package
// installed.
func builtIn(name string) bool {
	option, ok := options[name]
	if !ok {
		option = strings.ToUpper(name)
		if rest, is := strings.CutPrefix(option, "SCH_"); is {
			option = "NET_SCH_" + rest
		}
	}
	if f, err := os.Open("/proc/config.gz"); err == nil {
		defer func() { _ = f.Close() }()
		if text, err := gzip.NewReader(f); err == nil {
			return hasLine(text, func(line string) bool { return line == "CONFIG_"+option+"=y" })
		}
	}
	f, err := os.Open(filepath.Join("/lib/modules", release(), "modules.builtin"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return hasLine(f, func(line string) bool { return filepath.Base(line) == name+".ko" })
}

func hasLine(r io.Reader, match func(string) bool) bool {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if match(lines.Text()) {
			return true
		}
	}
	return false
}

// KernelAtLeast skips the test on older kernels; see VM for what that means in CI.
func KernelAtLeast(t testing.TB, major, minor int) {
	t.Helper()
	var haveMajor, haveMinor int
	if _, err := fmt.Sscanf(release(), "%d.%d", &haveMajor, &haveMinor); err != nil {
		t.Fatalf("parse kernel release %q: %v", release(), err)
	}
	if haveMajor > major || haveMajor == major && haveMinor >= minor {
		return
	}
	VM(t, fmt.Sprintf("needs Linux %d.%d, this is %s", major, minor, release()))
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
