package sliver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/host/lack"
)

func TestProgramsThatAServerNeedsAreNamedTogether(t *testing.T) {
	old := "#!/bin/sh\necho runc version 1.1.4\n"
	for _, c := range []struct {
		programs map[string]string
		runtime  string
		packages []string
	}{
		{nil, "", []string{"catatonit", "crun"}},
		{nil, "kata", []string{"", "catatonit"}},
		{map[string]string{"crun": "#!/bin/sh\n"}, "", []string{"catatonit"}},
		{map[string]string{"catatonit": "#!/bin/sh\n"}, "", []string{"crun"}},
		{map[string]string{"runc": old}, "", []string{"catatonit", "crun"}},
		{map[string]string{"catatonit": "#!/bin/sh\n", "crun": "#!/bin/sh\n"}, "", nil},
	} {
		dir := t.TempDir()
		for name, text := range c.programs {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		r := &Runtime{cfg: Config{Runtime: c.runtime}}
		err := r.findPrograms(t.Context())
		var e *lack.Error
		var have []string
		if errors.As(err, &e) {
			for _, l := range e.Lacks {
				have = append(have, l.Package)
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, c.packages) || (err == nil) != (c.packages == nil) {
			t.Errorf("with %v: %v, want %v: %v", c.programs, have, c.packages, err)
		}
	}
}
