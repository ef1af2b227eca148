package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// python gives the directory of programs of an environment that tools/python-env makes.
func python(t *testing.T, set string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(testkit.ModuleRoot(t), "tools", "python-env"), set)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin")
}

// netlab prepares a server, and the shell of a user of netlab whose home is empty.
func netlab(t *testing.T) *reader {
	t.Helper()
	testkit.Root(t)
	s := newServer(t, pergola(t))
	t.Setenv("PATH", filepath.Join(testkit.ModuleRoot(t), "packaging", "netlab")+":"+python(t, "netlab")+":"+
		os.Getenv("PATH")+":/usr/sbin:/sbin")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("NO_COLOR", "1")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return &reader{T: t, server: s, dir: t.TempDir()}
}

// TestNetlabPageSaysWhatIsSo types what docs/netlab.md tells the reader to type: OSPF with FRR and BIRD.
func TestNetlabPageSaysWhatIsSo(t *testing.T) {
	r := netlab(t)
	root := testkit.ModuleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "netlab.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, b := range blocks(string(page)) {
		steps++
		r.follow(strings.ReplaceAll(b.commands, "/usr/share/pergola/netlab", root+"/packaging/netlab"), b)
	}
	if steps < 2 {
		t.Errorf("the page has %d blocks to type", steps)
	}
}

// TestNetlab has labs of netlab with BGP, BIRD, hosts and a LAN, two at once.
func TestNetlab(t *testing.T) {
	r := netlab(t)
	root := testkit.ModuleRoot(t)
	r.mustRun("cp " + root + "/packaging/netlab/defaults.yml ~/.netlab.yml")
	r.mustRun("mkdir a b; cp " + root + "/test/e2e/testdata/netlab/bgp.yml a/topology.yml; cp a/topology.yml b/")
	r.mustRun("cd a; netlab up --plugin multilab -s defaults.multilab.id=1; cd ..")
	r.mustRun("cd b; netlab up --plugin multilab -s defaults.multilab.id=2; cd ..")
	out := r.mustRun("cd a; netlab validate; netlab status; cd ..")
	for _, want := range []string{"x1", "dut", "running"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what validate and status print:\n%s", want, out)
		}
	}
	// Configuration that changed is deployed again: netlab writes it, and it is copied into the node.
	r.mustRun("cd a; netlab initial; cd ..")
	// Each lab's directory means its own network.
	r.mustRun("cd b; netlab down --cleanup; cd ..")
	testkit.Eventually(t, func() error { // what was deployed again has reset them
		out := r.mustRun("cd a; netlab connect dut --show protocols; cd ..")
		if strings.Count(out, "Established") != 2 {
			return fmt.Errorf("sessions of BGP:\n%s", out)
		}
		return nil
	}, time.Minute, "both sessions of BGP")
	r.mustRun("cd a; netlab down --cleanup; cd ..")
	if out, err := r.command("ls", "--json").Output(); err != nil || strings.TrimSpace(string(out)) != "[]" {
		t.Errorf("after the labs went down there is %s, %v", out, err)
	}
}

// TestInventories has Ansible and Nornir reach all nodes by the inventories that `inspect` writes.
func TestInventories(t *testing.T) {
	testkit.Root(t)
	s := newServer(t, pergola(t))
	root := testkit.ModuleRoot(t)
	t.Setenv("PATH", python(t, "inventories")+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("ANSIBLE_CONNECTION_PLUGINS", filepath.Join(root, "packaging", "ansible"))
	t.Setenv("ANSIBLE_NOCOLOR", "1")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, server: s, dir: t.TempDir()}
	r.mustRun(`cat >pergola.yaml <<END
name: lab
nodes: {r1: {daemon: frr}, r2: {daemon: bird}, h: {kind: host}}
links: [[r1, r2], [r2, h]]
defaults: {node: {routing: ospf}}
END
pergola up --wait
pergola inspect --inventory ansible >inventory.yaml`)
	t.Run("Ansible", func(t *testing.T) {
		r.T = t
		out := r.mustRun(`ansible -i inventory.yaml frr -m raw -a "vtysh -c 'show ip route'"`)
		if !strings.Contains(out, "O>* ") {
			t.Errorf("routes of r1:\n%s", out)
		}
		out = r.mustRun(`ansible -i inventory.yaml all -m raw -a hostname`)
		for _, node := range []string{"r1", "r2", "h"} {
			if !strings.Contains(out, "\n"+node+"\n") && !strings.HasPrefix(out, node+"\n") {
				t.Errorf("%s did not give its name:\n%s", node, out)
			}
		}
		// Modules in Python, and files there and back.
		r.mustRun(`echo hello >word
ansible -i inventory.yaml all -m copy -a "src=word dest=/etc/word mode=0600"
ansible -i inventory.yaml all -m fetch -a "src=/etc/word dest=fetched"
cmp word fetched/r1/etc/word; cmp word fetched/h/etc/word`)
		if out, err := r.shell("ansible -i inventory.yaml r1 -m raw -a false").CombinedOutput(); err == nil ||
			!bytes.Contains(out, []byte("rc=1")) {
			t.Errorf("a command that fails: %v\n%s", err, out)
		}
	})
	t.Run("Nornir", func(t *testing.T) {
		r.T = t
		page, err := os.ReadFile(filepath.Join(root, "docs", "inventories.md"))
		if err != nil {
			t.Fatal(err)
		}
		_, script, found := strings.Cut(string(page), "```python\n")
		if script, _, _ = strings.Cut(script, "```"); !found {
			t.Fatal("the page has no script")
		}
		if err := os.WriteFile(filepath.Join(r.dir, "routes.py"), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		out := r.mustRun("pergola inspect lab --inventory nornir -o inventory && python routes.py")
		tells := strings.HasPrefix(out, "inventory/") || strings.Contains(out, "r1 ")
		if !tells || !strings.Contains(out, "O>* ") {
			t.Errorf("it printed:\n%s", out)
		}
	})
	r.T = t
	r.mustRun("pergola down lab")
}
