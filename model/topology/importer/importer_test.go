package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kballard/go-shellquote"

	"github.com/pergola-net/pergola/model/slice"
)

func TestDetect(t *testing.T) {
	for _, test := range []struct {
		file, data string
		want       Format
	}{
		{"x.graphml", "", GraphML}, {"X.GraphML", "", GraphML}, {"x.xml", "\ufeff \n<?xml version='1.0'?>", GraphML},
		{"lab.clab.yml", "", ClabYML}, {"lab.clab.yaml", "nodes: [a]", ClabYML},
		{"lab.yml", "name: x\n\ntopology:\n  nodes:\n", ClabYML},
		{"lab.yml", "\"topology\" :\n", ClabYML}, {"pergola.yaml", "nodes:\n  topology:\n", Pergola},
		{"-", "links: []", Pergola}, {"", "", Pergola},
	} {
		if got := Detect(test.file, []byte(test.data)); got != test.want {
			t.Errorf("%s with %q is %s, want %s", test.file, test.data, got, test.want)
		}
	}
}

func TestImageTableMatchesNamesOfAnyRegistry(t *testing.T) {
	table := DefaultImages()
	for image, want := range map[string]string{
		"quay.io/frrouting/frr:10.5.1": "frr", "frrouting/frr": "frr",
		"docker.io/frrouting/frr@sha256:abc": "frr",
		"localhost:5000/lab/frr:1":           "frr",
		"frr-debian:latest":                  "frr", "frrouting/frr-debian:v1": "frr", "bird": "bird",
		"me/bird2:2.0":             "bird",
		"alpine:3.20":              "host",
		"docker.io/library/alpine": "host", "nicolaka/netshoot": "host",
		"ghcr.io/srl-labs/network-multitool:v1": "host",
		"wbitt/network-multitool":               "host",
		"nginx":                                 "", "birdseye/app": "", "freerouting/x": "", "": "",
	} {
		rule, ok := table.find(image)
		got := ""
		if ok {
			got = rule.Rootfs
		}
		if rule.Daemon != "" {
			got = string(rule.Daemon)
		}
		if got != want {
			t.Errorf("%q gives %q, want %q", image, got, want)
		}
	}
}

func TestImageTableOfAUserComesFirst(t *testing.T) {
	table, found := ParseImages("images.yml", []byte("images:\n  - match: alpine\n    image: alpine:edge\n"+
		"  - {match: mylab/*, rootfs: ./root.tar, daemon: bird}\n"))
	if found.Err() != nil {
		t.Fatal(found)
	}
	want := ImageTable{{Match: "alpine", Image: "alpine:edge"},
		{Match: "mylab/*", Rootfs: "./root.tar", Daemon: slice.BIRD}}
	if diff := cmp.Diff(want, table[:2]); diff != "" || len(table) != 2+len(DefaultImages()) {
		t.Error(diff)
	}
	top, _ := Clab("x.clab.yml",
		[]byte("topology: {nodes: {a: {kind: linux, image: 'alpine:3'}, b: {kind: linux, image: mylab/x}}}"),
		ClabOptions{Images: table})
	if a, b := top.Nodes["a"], top.Nodes["b"]; a.Image != "alpine:edge" || b.Rootfs.Path != "./root.tar" ||
		b.Daemon != slice.BIRD {
		t.Errorf("%+v %+v", a, b)
	}
}

func TestBadImageTable(t *testing.T) {
	for text, want := range map[string]string{"": "empty", "images: x": "is a single value",
		"imges: []": `no "imges"`, "images: [{match: '['}]": "not a pattern",
		"images: [{match: a, rootfs: b, image: c}]": "not by both",
		"images: [{match: a, daemon: quagga}]":      "unknown daemon", "images: [{}]": "not a pattern"} {
		table, found := ParseImages("images.yml", []byte(text))
		if table != nil || found.Err() == nil || !strings.Contains(found.Error(), want) ||
			!strings.HasPrefix(found[0].String(), "images.yml:") {
			t.Errorf("%q gives %v", text, found)
		}
	}
}

func TestCommandLinesAreSplitAsByAShell(t *testing.T) {
	for line, want := range map[string][]string{
		"": {}, "a b": {"a", "b"}, " a\t\nb ": {"a", "b"}, `a 'b c' "d e"`: {"a", "b c", "d e"}, `a\ b`: {"a b"}, `""`: {""},
		`'a'"b"c`:  {"abc"},
		`"a\"b\n"`: {`a"b\n`}, `'a\'`: {`a\`},
	} {
		got, err := shellquote.Split(line)
		if err != nil || !slices.Equal(want, got) {
			t.Errorf("%q gives %q, %v", line, got, err)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`} {
		if got, err := shellquote.Split(line); err == nil {
			t.Errorf("%q gives %q", line, got)
		}
	}
}
