package main

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/pergola-net/pergola/bench/chart"
)

// section is what the report says beside the rows of a scenario that has a section of its own.
func (m *measurement) section(pictures []picture) string {
	var b strings.Builder
	s := m.Section
	fmt.Fprintf(
		&b,
		"\n## %s\n\nMade by `bin/bench -only %s -rounds %d -out docs/benchmarks.md`. %s\n",
		s.Title,
		m.Name,
		m.Origin.Rounds,
		s.Intro,
	)
	for _, t := range s.Tables {
		b.WriteString("\n")
		if t.Title != "" {
			fmt.Fprintf(&b, "%s\n\n", t.Title)
		}
		table(&b, t.Columns, t.Rows)
	}
	show(&b, pictures)
	if len(s.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

// drawCharts draws those that have points.
func drawCharts(charts []chart.Chart, dir string) (drawn []picture, err error) {
	for _, c := range charts {
		p := newPlot(c.Title, c.X, c.Y)
		if c.LogY { // an axis without zero
			p.Y.Min = math.Inf(1)
		}
		points := 0
		for i, curve := range c.Curves {
			xys := placed(c, curve)
			points += len(xys)
			if err := addCurve(p, c, i, curve.Name, xys); err != nil {
				return drawn, err
			}
		}
		if points == 0 {
			continue
		}
		if c.LogX {
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		}
		if c.LogY {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		}
		if err := save(p, dir, c.File); err != nil {
			return drawn, err
		}
		drawn = append(drawn, picture{c.File, c.Title})
	}
	return drawn, nil
}

// placed are the curve's points that have a place on the chart: a logarithmic axis has none for zero.
func placed(c chart.Chart, curve chart.Curve) (xys plotter.XYs) {
	for _, at := range curve.Points {
		if (!c.LogX || at.X > 0) && (!c.LogY || at.Y > 0) {
			xys = append(xys, plotter.XY{X: at.X, Y: at.Y})
		}
	}
	return xys
}

func addCurve(p *plot.Plot, c chart.Chart, number int, name string, points plotter.XYs) error {
	if !c.Steps || len(points) == 0 {
		return addLine(p, number, name, points)
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width, line.StepStyle = plotutil.Color(number), vg.Points(1.5), plotter.PostStep
	if number >= len(plotutil.SoftColors) {
		line.Dashes = plotutil.Dashes(1)
	}
	p.Add(line)
	p.Legend.Add(name, line)
	p.Legend.Top, p.Legend.Left = false, false
	return nil
}
