package sliver

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/host/lack"
)

// runcFixed is the first version in which a container cannot leave through a directory that runc forgot to close,
// CVE-2024-21626.
var runcFixed = []int{1, 1, 12}

// runcPatched are the packages of distributions that have the correction in an older version.
var runcPatched = regexp.MustCompile(`1\.1\.5\+ds1-1\+deb12u\d|rc93\+ds1-5\+deb11u([3-9]|\d\d)|` +
	`1\.1\.7-0ubuntu1~2[02]\.04\.([2-9]|\d\d)|1\.1\.7-0ubuntu2\.([2-9]|\d\d)`)

var runcVersion = regexp.MustCompile(`^runc version (\d+)\.(\d+)\.(\d+)(\S*)`)

// checkRunc finds versions of runc out of which a container can break. Other runtimes are not checked.
func checkRunc(ctx context.Context, path string) ([]lack.Lack, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if version, unsafe := unsafeRunc(string(out)); unsafe {
		return []lack.Lack{{What: fmt.Sprintf("%s is runc %s, out of which containers can break "+
			"(CVE-2024-21626): crun, which is preferred where it is there, or runc 1.1.12 or newer is "+
			"needed", path, version), Package: "crun"}}, nil
	}
	return nil, nil
}

// unsafeRunc parses the output of `runc --version`.
func unsafeRunc(said string) (version string, unsafe bool) {
	m := runcVersion.FindStringSubmatch(said)
	if m == nil {
		return "", false
	}
	var have []int
	for _, part := range m[1:4] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return m[0], true
		}
		have = append(have, n)
	}
	candidate := slices.Equal(have, runcFixed) && strings.HasPrefix(m[4], "-rc")
	return strings.TrimPrefix(m[0], "runc version "), (slices.Compare(have, runcFixed) < 0 || candidate) &&
		!runcPatched.MatchString(said)
}
