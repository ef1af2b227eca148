// Package cgroups finds the machine's hierarchy of control groups.
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNone is the error of a machine where no cgroup2 is mounted.
var ErrNone = errors.New("no cgroup2 is mounted")

// Root says where the root of cgroup2 is mounted: what is attached there concerns all processes. A mount of a part of
// it would concern that part alone.
func Root() (path string, err error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = mounts.Close() }()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() { // 35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw: proc(5)
		own, of, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(own)
		if strings.HasPrefix(of, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errors.Join(ErrNone, lines.Err())
}
