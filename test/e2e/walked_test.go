package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/control/api"
)

// cmdWalked checks that frames were, or with ! were not, walked into a router by an interface since the story last
// asked about it.
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

// cmdCarried checks that a router's interface is said to have carried so many frames of that length each way since the
// story last asked about it. A tenth more may be what routers and hosts send by themselves; a tenth less walked, what a
// kernel had to see. Without numbers it only begins to count.
func (s *server) cmdCarried(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 && len(args) != 4 {
		ts.Fatalf("usage: carried SLICE NODE:INTERFACE [FRAMES BYTES]")
	}
	now, err := s.trafficOf(args[0], args[1])
	ts.Check(err)
	mark := "carried-" + strings.ReplaceAll(args[1], ":", "-")
	text, err := json.Marshal(now)
	ts.Check(err)
	before := ts.Getenv(mark)
	ts.Setenv(mark, string(text))
	if len(args) == 2 {
		return
	}
	var was api.InterfaceTraffic
	ts.Check(json.Unmarshal([]byte(before), &was))
	frames, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	length, err := strconv.ParseUint(args[3], 10, 64)
	ts.Check(err)
	const longest = 1514
	for _, c := range []struct {
		what    string
		was, is api.Traffic
		least   uint64
	}{
		{"received", was.Received, now.Received, frames},
		{"sent", was.Sent, now.Sent, frames},
		{"walked in", was.WalkedIn, now.WalkedIn, frames - frames/10},
		{"walked out", was.WalkedOut, now.WalkedOut, frames - frames/10},
	} {
		f, b := c.is.Frames-c.was.Frames, c.is.Bytes-c.was.Bytes
		ts.Logf("%s %s: %d frames, %d bytes", args[1], c.what, f, b)
		if f < c.least || f > frames+frames/10 || b < c.least*length || b > frames*length+frames/10*longest {
			ts.Fatalf("%s is said to have %s %d frames, %d bytes: want %d of %d bytes", args[1], c.what, f,
				b, frames, length)
		}
	}
}

func (s *server) walkedInto(slice, end string) (uint64, error) {
	i, err := s.trafficOf(slice, end)
	return i.WalkedIn.Frames, err
}

func (s *server) trafficOf(slice, end string) (i api.InterfaceTraffic, err error) {
	out, err := s.command("top", slice, "--json").Output()
	if err != nil {
		return i, fmt.Errorf("read the counters of %s: %w", slice, err)
	}
	var t api.SliceTraffic
	if err := json.Unmarshal(out, &t); err != nil {
		return i, fmt.Errorf("parse the counters of %s: %w", slice, err)
	}
	for _, i := range t.Interfaces {
		if i.Node+":"+i.Interface == end {
			return i, nil
		}
	}
	return i, fmt.Errorf("no counters of %s", end)
}
