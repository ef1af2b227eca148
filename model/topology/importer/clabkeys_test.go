package importer

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

const keyed = `
topology:
  nodes:
    a:
      kind: linux
      image: alpine
      env: {A: node}
      env-files: [envs, /etc/elsewhere]
      dns: {servers: [192.0.2.53], search: [example.com]}
      ports: ["8080:8080", "80:8080", "53:53/udp"]
      exec: [echo own __clabLabName__]
      healthcheck: {test: [CMD-SHELL, cat /etc/hostname], start-period: 3, interval: 5, timeout: 2, retries: 2}
      stages:
        create: {wait-for: [{node: b, stage: healthy}]}
        configure: {wait-for: [{node: b, stage: create}]}
        create-links:
          exec: [{command: echo out, phase: on-exit}, {command: echo in}, {command: touch /x, target: host}]
        healthy: {exec: [{command: echo last}]}
    b:
      kind: linux
      image: alpine
      startup-delay: 3
      stages: {create-links: {wait-for: [{node: c.d, stage: exit}, {node: br, stage: create}]}}
    c.d: {kind: linux, image: alpine}
    br: {kind: bridge}
`

func TestClabCarriesOutWhatIsAroundANode(t *testing.T) {
	dir := fstest.MapFS{"envs": {Data: []byte("# c\nA=file\nB='two'\n")}}
	top, found := clabOf(t, keyed, ClabOptions{Dir: dir, Root: true})
	a := top.Nodes["a"]
	if diff := cmp.Diff(map[string]string{"A": "node", "B": "two"}, a.Env); diff != "" {
		t.Error(diff)
	}
	if got := a.Files["/etc/resolv.conf"].Content; got != "nameserver 192.0.2.53\nsearch example.com\n" {
		t.Errorf("resolv.conf is %q", got)
	}
	if len(a.Ports) != 2 || a.Ports[0].Port != "tcp/8080" || a.Ports[1].Port != "udp/53" {
		t.Errorf("ports %v", a.Ports)
	}
	want := topology.Strings{"echo in", "echo out", "echo own clab-lab", "echo last"}
	if !slices.Equal(a.Exec, want) {
		t.Errorf("exec %q, want %q", a.Exec, want)
	}
	if c := top.Checks[0]; c.Node != "a" || c.Exec != "cat /etc/hostname" || c.Timeout != "10s" {
		t.Errorf("check %+v", c)
	}
	if want := (topology.Strings{"b:ready"}); !slices.Equal(a.WaitFor, want) {
		t.Errorf("a waits for %q, want %q", a.WaitFor, want)
	}
	b, ends := top.Nodes["b"], top.Nodes["c-d"]
	if want := (topology.Strings{"c-d:exited"}); !slices.Equal(b.WaitFor, want) || b.Delay != "3s" {
		t.Errorf("b waits for %q, want %q, and %s", b.WaitFor, want, b.Delay)
	}
	if ends.Restart != slice.RestartNever {
		t.Errorf("b waits for the end of a node that starts again: %q", ends.Restart)
	}
	text := found.Error()
	for _, want := range []string{"commands of stages on the host of node a", "wait-for: healthy of node a",
		"wait-for of stage configure of node a", "wait-for: br of node b", "ports of node a",
		"env-files of node a"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said to be left out:\n%s", want, text)
		}
	}
	if top, _ := clabOf(t, keyed, ClabOptions{Dir: dir}); len(top.Nodes["a"].Ports) > 0 {
		t.Error("ports are published without root")
	}
}

func TestTemplatesAreFilledInAsContainerlabDoes(t *testing.T) {
	const leaves = `name: t
topology:
  nodes:
{{- range $i := seq 1 $.leaves.num }}
    {{ $.leaves.prefix }}{{ add $i 10 }}: {kind: linux, image: alpine}
{{- end }}
{{ template "more.gotmpl" (slice "spine" 1) }}
`
	dir := fstest.MapFS{"lab.clab_vars.yaml": {Data: []byte("leaves: {num: 2, prefix: x}")},
		"lab.clab_vars.z.yaml":       {Data: []byte("leaves: {prefix: leaf}")},
		"clab_templates/more.gotmpl": {Data: []byte("    {{ index . 0 }}: {kind: linux, image: alpine}")}}
	top, _ := clabOf(t, leaves, ClabOptions{Dir: dir})
	for _, name := range []string{"leaf11", "leaf12", "spine"} {
		if _, ok := top.Nodes[name]; !ok {
			t.Errorf("there is no %s: %v", name, top.Nodes)
		}
	}
	top, _ = clabOf(t, leaves, ClabOptions{Dir: dir,
		Vars: []VarsFile{{"v", []byte("leaves: {num: 1, prefix: z}")}}})
	if _, ok := top.Nodes["z11"]; !ok || len(top.Nodes) != 2 {
		t.Errorf("nodes %v", top.Nodes)
	}
	for text, want := range map[string]string{
		"{{ .x": "fill in the template", "name: {{ .x }}": "has no value", "{{ seq 1 9999999 }}": "more than",
		"{{ div 1 0 }}": "division by zero", "{{ template \"no\" }}": "no",
	} {
		if _, found := Clab("x.clab.yml", []byte(text), ClabOptions{}); found.Err() == nil ||
			!strings.Contains(found.Error(), want) {
			t.Errorf("%s: %v, want %s", text, found, want)
		}
	}
}

const staged = `
topology:
  kinds:
    linux: {stages: {create: {exec: [{command: echo of the kind}]}}}
  nodes:
    a:
      kind: linux
      image: alpine
      stages: {create: {exec: [{command: echo of the node}]}, exit: {exec: [{command: echo bye}]}}
    b: {kind: linux, image: alpine, network-mode: host, healthcheck: {test: [CMD, "true"]}}
`

func TestClabRunsTheStagesOfAllLevels(t *testing.T) {
	top, found := clabOf(t, staged, ClabOptions{})
	want := topology.Strings{"echo of the kind", "echo of the node"}
	if !slices.Equal(top.Nodes["a"].Exec, want) {
		t.Errorf("exec %q, want %q", top.Nodes["a"].Exec, want)
	}
	if text := found.Error(); !strings.Contains(text, "stage exit of node a") {
		t.Errorf("stage exit is not said to be left out:\n%s", text)
	}
	if len(top.Checks) > 0 {
		t.Errorf("a node that is left out is checked: %+v", top.Checks)
	}
}

func TestClabNamesMisspeltStages(t *testing.T) {
	for text, want := range map[string]string{
		"create-link: {exec: [{command: x}]}": `stages of node "a" have no "create-link"`,
		"create: {execs: [{command: x}]}":     `stage create of node "a" has no "execs"`,
	} {
		const before = "topology:\n  nodes:\n    a:\n      kind: linux\n      image: alpine\n      stages: "
		lab := before + "{" + text + "}\n"
		_, found := Clab("lab.clab.yml", []byte(lab), ClabOptions{})
		if !strings.Contains(found.Error(), want) {
			t.Errorf("%s: %v", text, found)
		}
	}
}
