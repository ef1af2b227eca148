package importer

import (
	"strings"
	"testing"
)

const waitingForBridges = `topology:
  nodes:
    a:
      kind: linux
      image: alpine
      stages:
        create:
          wait-for:
            - {node: br, stage: create}
            - {node: b, stage: create}
    b: {kind: linux, image: alpine, stages: {create: {wait-for: [{node: br, stage: create}]}}}
    c: {kind: linux, image: alpine, stages: {create: {wait-for: [{node: br, stage: create}]}}}
    d: {kind: linux, image: alpine, stages: {create: {wait-for: [{node: br, stage: create}]}}}
    br: {kind: bridge}
`

// The first node that waits is named first, with the line where it does.
func TestWaitsThatAreLeftOutAreToldWithTheirPlace(t *testing.T) {
	for range 20 { // maps have no order
		_, found := clabOf(t, waitingForBridges, ClabOptions{})
		const want = "wait-for: br of nodes a, b"
		if text := found.Error(); !strings.Contains(text, want) || !strings.Contains(text, ":9:") {
			t.Fatalf("no %q of line 9 in\n%s", want, text)
		}
	}
}
