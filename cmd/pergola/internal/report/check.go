package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// manyChecks is more than a person reads: beyond it only checks that do not hold are shown.
const manyChecks = 40

// Checks is the table of results. Of many, those that hold are hidden unless all is true, and those that fail are
// summed up. hidden is the number of those that hold and have no row.
func Checks(results []api.CheckResult, styles ui.Styles, all bool) (t *ui.Table, hidden int) {
	t = &ui.Table{Columns: []string{"CHECK", "ADDRESS", "RESULT", "TIME", "DETAIL"}}
	const result = 2
	var failed []api.CheckResult
	for _, r := range results {
		switch {
		case all || len(results) <= manyChecks:
			t.Row(checkName(r), address(r), word(r.OK), duration(r), r.Message)
		case r.OK:
			hidden++
		default:
			failed = append(failed, r)
		}
	}
	if len(failed) <= manyChecks {
		for _, r := range failed {
			t.Row(checkName(r), address(r), word(r.OK), duration(r), r.Message)
		}
	} else {
		sumUp(t, failed)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != result {
			return lipgloss.Style{}, false
		}
		if t.Rows[row][result] == word(true) {
			return styles.Good, true
		}
		return styles.Bad, true
	}
	return t, hidden
}

// failures are checks that failed by the same cause.
type failures struct {
	node, cause string // node: " from a", " to a" or, of several nodes, nothing
	results     []api.CheckResult
}

// sumUp has a row for each node and cause, or, where these are too many, for each cause. The node is the one that tried
// or the one that was not reached, whichever makes fewer rows.
func sumUp(t *ui.Table, failed []api.CheckResult) {
	from := func(r api.CheckResult) string { return " from " + r.From }
	groups := groupFailures(failed, from)
	to := groupFailures(failed, func(r api.CheckResult) string {
		if r.To == "" { // it is no other node that was asked
			return from(r)
		}
		return " to " + r.To
	})
	if len(to) < len(groups) {
		groups = to
	}
	if len(groups) > manyChecks {
		groups = groupFailures(failed, func(api.CheckResult) string { return "" })
	}
	for _, g := range groups {
		if len(g.results) == 1 {
			r := g.results[0]
			t.Row(checkName(r), address(r), word(false), duration(r), r.Message)
			continue
		}
		t.Row(wording.Count(len(g.results), "check")+g.node, "", word(false), "", g.cause)
	}
}

// groupFailures keeps the order of the first of each group.
func groupFailures(failed []api.CheckResult, node func(api.CheckResult) string) (groups []*failures) {
	type key struct{ node, cause string }
	known := map[key]*failures{}
	for _, r := range failed {
		k := key{node(r), r.Message}
		if known[k] == nil {
			known[k] = &failures{node: k.node, cause: k.cause}
			groups = append(groups, known[k])
		}
		known[k].results = append(known[k].results, r)
	}
	return groups
}

func word(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

func checkName(r api.CheckResult) string {
	if r.Name != "" {
		return r.Name
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Kind, r.From, r.To))
}

// address is what was asked for: a node has one of each family.
func address(r api.CheckResult) string {
	if !r.Address.IsValid() {
		return ""
	}
	return r.Address.String()
}

func duration(r api.CheckResult) string {
	switch {
	case r.RTT != 0:
		return ui.Delay(r.RTT.Round(time.Microsecond))
	case r.Duration != 0:
		return ui.Delay(r.Duration.Round(time.Microsecond))
	}
	return ""
}

// Verdict is the last line of a check.
func Verdict(name string, results []api.CheckResult, took time.Duration, t *ui.Terminal) string {
	failed, holds := 0, "the check holds"
	if len(results) > 1 {
		holds = fmt.Sprintf("all %d checks hold", len(results))
	}
	for _, r := range results {
		if !r.OK {
			failed++
		}
	}
	switch {
	case len(results) == 0:
		return name + ": there was nothing to check: its file has no checks, and no two nodes have addresses " +
			"and links between them"
	case failed == 0:
		return t.Paint(t.Styles.Good, name+": "+holds) +
			" (" + ui.Elapsed(took) + ")"
	}
	return t.Paint(t.Styles.Bad, fmt.Sprintf("%s: %d of %s failed", name, failed,
		wording.Count(len(results), "check"))) + " (" + ui.Elapsed(took) + ")"
}

// JUnit writes the results as CI systems read them: one suite, one case for each check.
func JUnit(w io.Writer, name string, results []api.CheckResult) error {
	suite := junit.Testsuite{Name: name}
	var total time.Duration
	for _, r := range results {
		c := junit.Testcase{
			Name:      strings.TrimSpace(checkName(r) + " " + address(r)),
			Classname: name + "." + string(r.Kind),
			Time:      strconv.FormatFloat(r.Duration.Seconds(), 'f', 6, 64),
		}
		total += r.Duration
		if !r.OK {
			c.Failure = &junit.Result{Message: r.Message, Type: string(r.Kind), Data: r.Message}
		} else if r.Message != "" {
			c.SystemOut = &junit.Output{Data: r.Message}
		}
		suite.AddTestcase(c)
	}
	suite.Time = strconv.FormatFloat(total.Seconds(), 'f', 6, 64)
	suites := junit.Testsuites{Name: "pergola check"}
	suites.AddSuite(suite)
	return suites.WriteXML(w)
}

// Headline says in one line how a network is.
func Headline(s *api.Slice, t *ui.Terminal, now time.Time) string {
	running, lost := 0, 0
	for _, n := range s.Status.Nodes {
		switch n.Phase {
		case slice.Running:
			running++
		case slice.Lost:
			lost++
		default:
		}
	}
	state := sliceState(api.Summary{
		Deleting: s.Deleting, Settled: s.Status.Settled, Errors: s.Status.Errors, Running: running, Lost: lost,
		Nodes: len(s.Spec.Nodes),
	})
	line := fmt.Sprintf("%s: %s, %d of %s running, %s", t.Paint(t.Styles.Bold, s.Spec.Name),
		t.Paint(stateStyle(state, t.Styles), state), running, wording.Count(len(s.Spec.Nodes), "node"),
		wording.Count(len(s.Spec.Links), "link"))
	if changed := ago(s.Updated, now); changed != "" {
		line += ", changed " + changed
	}
	return line
}
