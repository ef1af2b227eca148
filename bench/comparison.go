package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// comparisonResult is what a comparison of two builds showed.
type comparisonResult struct {
	Before      string       `json:"before"` // version of the other build; this one's is in the origin
	Origin      origin       `json:"origin"`
	Differences []difference `json:"differences"`
}

// difference is one figure of both builds.
type difference struct {
	Scenario string `json:"scenario"`
	What     string `json:"what"`
	Unit     string `json:"unit"`
	// Medians over the rounds.
	Before float64 `json:"before"`
	Now    float64 `json:"now"`
	// How many times better it is now: the median of the rounds, and their bounds; 0 where both are zero.
	Better  float64 `json:"better,omitempty"`
	Lowest  float64 `json:"lowest,omitempty"`
	Highest float64 `json:"highest,omitempty"`
	Control bool    `json:"control,omitempty"` // measured without Pergola: it tells how much the machine varies
}

// worse is the ratio below which a figure is reported as worse.
const worse = 0.97

func (d difference) isJudged() bool { return !d.Control && d.Better != 0 }

func (d difference) isWorse() bool { return d.isJudged() && d.Better < worse }

func (d difference) cells() []string {
	verdict := ""
	switch {
	case d.Control:
		verdict = "control"
	case d.isWorse():
		verdict = "**worse**"
	}
	return []string{
		d.Scenario, d.What + ", " + d.Unit, short(d.Before), short(d.Now), ratio(d.Better),
		ratio(d.Lowest) + " to " + ratio(d.Highest), verdict,
	}
}

// table lists all figures.
func (c *comparisonResult) table() string {
	columns := []string{"scenario", "what", "before", "now", "times better", "lowest to highest", ""}
	var lines [][]string
	judged, missed := 0, 0
	for _, d := range c.Differences {
		lines = append(lines, d.cells())
		if d.isJudged() {
			judged++
		}
		if d.isWorse() {
			missed++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of %d rounds, both builds in turn. *Times better* is the median over the rounds.\n",
		c.Origin.Rounds)
	fmt.Fprintf(&b, "%d of %d figures of Pergola are worse by more than %.0f %%. *Control*: "+
		"figures without Pergola.\n\n",
		missed, judged, (1-worse)*100)
	table(&b, columns, lines)
	return b.String()
}

// putComparison takes a comparison. Of earlier ones with the same version it replaces what it measured again.
func (d *document) putComparison(c *comparisonResult) {
	again := func(was difference) bool {
		return slices.ContainsFunc(c.Differences,
			func(is difference) bool { return is.Scenario == was.Scenario })
	}
	for _, was := range d.Comparisons {
		if was.Before == c.Before {
			was.Differences = slices.DeleteFunc(was.Differences, again)
		}
	}
	d.Comparisons = slices.DeleteFunc(d.Comparisons, func(was *comparisonResult) bool {
		return len(was.Differences) == 0
	})
	d.Comparisons = append(d.Comparisons, c)
}

// comparisonSections are those of the report.
func (d *document) comparisonSections() string {
	if len(d.Comparisons) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## Compared with earlier versions\n")
	for _, c := range d.Comparisons {
		fmt.Fprintf(&b, "\n**Before: %s**\n\n", c.Before)
		c.Origin.list(&b)
		b.WriteString(c.table())
	}
	return b.String()
}

// short gives four figures: what is looked for is a difference of three per cent.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// ratio is empty where there is none, as of two values that are zero.
func ratio(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// finite is 0 for what is no number.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
