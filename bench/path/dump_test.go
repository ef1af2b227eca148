package path

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestDump is for development.
func TestDump(t *testing.T) {
	if os.Getenv("DUMP") == "" {
		t.Skip()
	}
	var hops []int
	for _, w := range strings.Split(os.Getenv("DUMP"), ",") {
		n, _ := strconv.Atoi(w)
		hops = append(hops, n)
	}
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	var ms []Measure
	for _, m := range strings.Fields(os.Getenv("ONLY")) {
		ms = append(ms, Measure(m))
	}
	var ns []Network
	for _, m := range strings.Fields(os.Getenv("NETS")) {
		ns = append(ns, Network(m))
	}
	start := time.Now()
	r, err := Run(t.Context(), Config{Rounds: rounds, Routers: hops, Networks: ns, Measures: ms, Table: os.Getenv("TABLE") != ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("took %v, windows %d thrown %d", time.Since(start), r.Windows, r.Thrown)
	for _, m := range r.Missing {
		t.Logf("missing %s: %s", m.What, m.Why)
	}
	for _, s := range r.Series {
		t.Logf("%-10s %-8s %2d %7d  %12.5g  slow %.3f  %v", s.Measure, s.Network, s.Routers, s.Routes, r.Median(s.Key), s.Slow, s.Samples)
	}
	for _, g := range r.Goals() {
		t.Logf("%s: %.3g %s (%s)", g.What, g.Value, g.Unit, g.Wanted())
	}
}
