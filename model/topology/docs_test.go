package topology

import (
	"os"
	"regexp"
	"testing"
)

// TestReferenceIsRight resolves every example of the reference and checks it against the published schema.
func TestReferenceIsRight(t *testing.T) {
	page, err := os.ReadFile("../../docs/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 8 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, block := range blocks {
		top := mustParse(t, "example.yaml", block[1])
		sendSources(top)
		mustResolve(t, top, nil)
		checkSchema(t, block[1])
	}
}
