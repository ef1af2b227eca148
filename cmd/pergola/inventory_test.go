package main

import (
	"os"
	"strings"
	"testing"
)

func TestInventories(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "inspect", "--inventory", "ansible").want(t, 0, `(?s)^all:\n.*routers:.*ansible_host: lab/a\n`, "")
	pergola(t, "inspect", "lab", "--inventory", "nornir", "-o", "inv").want(t, 0, "", "inv/hosts.yaml written")
	for file, want := range map[string]string{
		"inv/hosts.yaml": "hostname: lab/b\n", "inv/groups.yaml": "routers: {}\n"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is %q, %v", file, text, err)
		}
	}
	pergola(t, "inspect", "--inventory", "nornir").want(t, 2, "", "add --output DIRECTORY")
	pergola(t, "inspect", "--inventory", "ansibel").want(t, 2, "", "did you mean ansible")
	pergola(t, "inspect", "a", "--inventory", "ansible").want(t, 2, "", "of a whole network")
	pergola(t, "inspect", "-o", "inv").want(t, 2, "", "--output is for inventories")
}
