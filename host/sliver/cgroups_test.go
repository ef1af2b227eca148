package sliver

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What the kernel counts when it kills in a group, by version.
func TestWantOfMemoryIsRead(t *testing.T) {
	v1 := func(root string) cgroups { return &cgroups1{root: root} }
	v2 := func(root string) cgroups { return &cgroups2{root: root} }
	for _, c := range []struct {
		name   string
		groups func(root string) cgroups
		files  map[string]string
		want   bool
	}{
		{"v1, at its limit", v1, map[string]string{
			"memory/g/memory.failcnt":     "17\n",
			"memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		}, true},
		{"v1, the machine's want", v1, map[string]string{
			"memory/g/memory.failcnt":     "0\n",
			"memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		}, false},
		{"v1, nobody killed", v1, map[string]string{
			"memory/g/memory.failcnt":     "17\n",
			"memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
		}, false},
		{"v1, Linux before 4.13", v1, map[string]string{
			"memory/g/memory.failcnt":     "17\n",
			"memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n",
		}, false},
		{"v1 without the controller", v1, nil, false},
		{"v2, at its limit", v2, map[string]string{
			"g/memory.events": "low 0\nhigh 0\nmax 52\noom 2\noom_kill 1\noom_group_kill 0\n",
		}, true},
		{"v2, the machine's want", v2, map[string]string{
			"g/memory.events": "low 0\nhigh 0\nmax 52\noom 0\noom_kill 1\noom_group_kill 0\n",
		}, false},
		{"v2 without the controller", v2, nil, false},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.groups(root).outOfMemory("g"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The kernel gives processor time in periods: a node waits for its next turn no longer than one.
func TestProcessorTimeIsLimitedInPeriods(t *testing.T) {
	for _, c := range []struct {
		limits limits
		quota  int64
		period uint64
	}{
		{limits{cpu: 0.5}, 50_000, 100_000},
		{limits{cpu: 0.5, period: 10 * time.Millisecond}, 5_000, 10_000},
		{limits{cpu: 2, period: 5 * time.Millisecond}, 10_000, 5_000},
		{limits{cpu: 0.25, period: time.Second}, 250_000, 1_000_000},
	} {
		if quota, period := c.limits.quota(); quota != c.quota || period != c.period {
			t.Errorf("%+v: %d us in %d us, want %d in %d", c.limits, quota, period, c.quota, c.period)
		}
	}
}
