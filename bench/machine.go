package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine says where the figures are from.
func describeMachine(ctx context.Context, binary string) ([]fact, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("ask for the kernel's release: %w", err)
	}
	memory, err := sum("/proc/meminfo", "MemTotal")
	if err != nil {
		return nil, err
	}
	version, err := pergolaVersion(ctx, binary)
	if err != nil {
		return nil, err
	}
	return []fact{
		{"Machine", fmt.Sprintf("%s, %d cores, %.0f GiB", processor(), runtime.NumCPU(), memory/1024)},
		{"Kernel", unix.ByteSliceToString(u.Release[:])},
		{"Hypervisor", hypervisor()},
		{"Pergola", version},
		{"FRR", packageVersion(ctx, "frr")},
		{"BIRD", packageVersion(ctx, "bird2")},
		{"Mininet", packageVersion(ctx, "mininet")},
		{"Open vSwitch", packageVersion(ctx, "openvswitch-switch")},
	}, nil
}

// pergolaVersion is the first line of `pergola version`.
func pergolaVersion(ctx context.Context, binary string) (string, error) {
	text, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask for the version of %s: %w", binary, err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), nil
}

func processor() string { return cpuinfo("model name", "unknown processor") }

func hypervisor() string {
	if strings.Contains(" "+cpuinfo("flags", "")+" ", " hypervisor ") {
		return "yes: a virtual machine, whose speed varies with its neighbours"
	}
	return "none"
}

func cpuinfo(key, otherwise string) string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return otherwise
}

func packageVersion(ctx context.Context, name string) string {
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f=${Version}", name).Output()
	if err != nil || len(out) == 0 {
		return "not from a package"
	}
	return string(out)
}
