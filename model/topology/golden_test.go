package topology

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files and the published schema anew")

// TestResolvesSmallNetworks compares what small networks, one for each protocol and more, become. Each file of
// testdata/resolve has its slice beside it.
func TestResolvesSmallNetworks(t *testing.T) {
	files, err := filepath.Glob("testdata/resolve/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("find networks: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			top := mustParse(t, file, data)
			sendSources(top)
			s, found := Resolve(top, nil)
			if len(found) > 0 {
				t.Fatal(found.Error())
			}
			checkSchema(t, data)
			got := []byte(jsonOf(t, s) + "\n")
			golden := strings.TrimSuffix(file, ".yaml") + ".json"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got) {
				t.Errorf("%s (go test ./model/topology -update):\n%s", golden,
					cmp.Diff(string(want), string(got)))
			}
		})
	}
}
