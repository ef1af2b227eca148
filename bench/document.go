package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/queues"
	"github.com/pergola-net/pergola/bench/tunnel"
)

// document is all that was measured, in this run or in earlier ones. It is kept beside the report, as JSON, so that a
// scenario can be measured anew without the others being lost.
type document struct {
	Scenarios   []*measurement      `json:"scenarios"` // in the order of scenarios
	Comparisons []*comparisonResult `json:"comparisons,omitempty"`
}

// measurement is what a scenario showed.
type measurement struct {
	Name    string         `json:"name"`
	Origin  origin         `json:"origin"`
	Rows    []row          `json:"rows,omitempty"`
	Path    *path.Result   `json:"path,omitempty"`
	Tunnels *tunnel.Result `json:"tunnels,omitempty"`
	Queues  *queues.Run    `json:"queues,omitempty"` // the last round
	Section *chart.Section `json:"section,omitempty"`
	Failed  string         `json:"failed,omitempty"` // why nothing was measured, or not everything
}

// origin says what the figures are from.
type origin struct {
	Machine []fact `json:"machine"`
	Command string `json:"command"`
	Rounds  int    `json:"rounds"`
}

type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (o origin) equal(p origin) bool {
	return o.Command == p.Command && o.Rounds == p.Rounds && slices.Equal(o.Machine, p.Machine)
}

// beside is where the document of a report is.
func beside(report string) string { return strings.TrimSuffix(report, ".md") + ".json" }

// readDocument reads the one of a report; it is empty where there is none yet.
func readDocument(report string) (*document, error) {
	d := &document{}
	text, err := os.ReadFile(beside(report))
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was measured before: %w", err)
	}
	return d, nil
}

func (d *document) find(name string) *measurement {
	i := slices.IndexFunc(d.Scenarios, func(m *measurement) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return d.Scenarios[i]
}

// put takes a measurement in place of an earlier one of the same scenario. One that failed replaces none that did
// not: figures that are true of an earlier commit are better than none, and say of which they are.
func (d *document) put(m *measurement) {
	if was := d.find(m.Name); was != nil {
		if m.Failed == "" || was.Failed != "" {
			*was = *m
		}
		return
	}
	d.Scenarios = append(d.Scenarios, m)
	place := func(m *measurement) int {
		return slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == m.Name })
	}
	slices.SortStableFunc(d.Scenarios, func(a, b *measurement) int { return place(a) - place(b) })
}

// write writes the report and the document beside it.
func (d *document) write(report string, plots plots) error {
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(replace(beside(report), append(text, '\n')), replace(report, []byte(d.report(plots))))
}

// replace writes a file atomically: after an interruption it is the old one or the new one.
func replace(name string, text []byte) error {
	return renameio.WriteFile(name, text, 0o644, renameio.WithTempDir(filepath.Dir(name)))
}
