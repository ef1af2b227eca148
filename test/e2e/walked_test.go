package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/api"
)

// cmdWalked checks that frames were, or with ! were not, walked into a router by an interface since the story last asked about it.
func (s *server) cmdWalked(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] walked SLICE NODE:INTERFACE FRAMES")
	}
	least, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	frames, err := s.walkedInto(args[0], args[1])
	ts.Check(err)
	mark := "walked-" + strings.ReplaceAll(args[1], ":", "-")
	before, _ := strconv.ParseUint(ts.Getenv(mark), 10, 64)
	if before > frames { // the interface was made anew
		before = 0
	}
	ts.Setenv(mark, strconv.FormatUint(frames, 10))
	ts.Logf("%d frames were walked into %s", frames-before, args[1])
	if (frames-before >= least) == neg {
		ts.Fatalf("wanted %d or more: %v", least, !neg)
	}
}

func (s *server) walkedInto(slice, end string) (uint64, error) {
	out, err := s.command("top", slice, "--json").Output()
	if err != nil {
		return 0, fmt.Errorf("read the counters of %s: %w", slice, err)
	}
	var t api.SliceTraffic
	if err := json.Unmarshal(out, &t); err != nil {
		return 0, fmt.Errorf("parse the counters of %s: %w", slice, err)
	}
	for _, i := range t.Interfaces {
		if i.Node+":"+i.Interface == end {
			return i.WalkedIn.Frames, nil
		}
	}
	return 0, fmt.Errorf("no counters of %s", end)
}
