package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestCommandLinesThatAreWrong(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"argument"}, exitUsage},
		{[]string{"--flag"}, exitUsage},
		{[]string{"--listen", "0.0.0.0"}, exitUsage},
		{[]string{"--listen", "127.0.0.1:0"}, exitFailed},
		{[]string{"--listen", "127.0.0.1", "--max-lifetime", "1ms"}, exitUsage},
		{[]string{"--listen", "127.0.0.1", "--max-triggers", "-1"}, exitUsage},
		{[]string{"--listen", "127.0.0.1", "--ring-key", empty}, exitFailed},
		{[]string{"--listen", "127.0.0.1", "--ring-key", empty + "s"}, exitFailed},
		{[]string{"--listen", "192.0.2.1"}, exitFailed}, // an address of another machine
	} {
		var stderr bytes.Buffer
		if got := run(t.Context(), c.args, &stderr); got != c.want || stderr.Len() == 0 {
			t.Errorf("i3d %v ends with %d, want %d: %s", c.args, got, c.want, &stderr)
		}
	}
}

func TestServerEndsWhenItIsAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	if got := run(ctx, []string{"--listen", "127.88.0.1", "--linger", "1ms"}, &stderr); got != 0 {
		t.Errorf("it ends with %d: %s", got, &stderr)
	}
}

func TestPositionAndKeyAreTakenFromTheCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := flags{listen: "192.0.2.1", position: strings.Repeat("ab", 32), ringKey: file,
		join: []string{"192.0.2.2:9"}, lifetime: time.Minute, stabilize: time.Second}
	c, err := configure(t.Context(), &f)
	if err != nil {
		t.Fatal(err)
	}
	self := c.Ring.Self
	if self.Key.String() != strings.Repeat("ab", 16) || self.Addr.String() != "192.0.2.1:5610" ||
		string(c.RingKey) != "secret" || c.Ring.Join[0].String() != "192.0.2.2:9" {
		t.Errorf("the configuration is %+v", c)
	}
}

func TestManualHasOnlyFlagsThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/i3.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^i3d (.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(lines) < 2 {
		t.Fatalf("docs/i3.md has %d lines with i3d", len(lines))
	}
	for _, line := range lines {
		words, _, _ := strings.Cut(line[1], " &")
		if err := newRoot(&bytes.Buffer{}).ParseFlags(strings.Fields(words)); err != nil {
			t.Errorf("%s: %v", line[0], err)
		}
	}
}
