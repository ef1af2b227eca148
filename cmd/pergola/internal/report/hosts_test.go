package report

import (
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
)

func TestHostSaysByWhatItsTunnelsLeave(t *testing.T) {
	var h api.Host
	for bound, want := range map[bool]string{
		false: "they leave by   wherever its routes lead",
		true:  "they leave by   the interfaces below, and no others",
	} {
		h.Bound = bound
		if lines := Host(&h, time.Now()); !slices.Contains(lines, want) {
			t.Errorf("bound %v: %q", bound, lines)
		}
	}
}
