// Package chart holds what a section of the report shows, as values: tables, curves and what readers must know.
package chart

import (
	"math"
	"slices"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Section is a section of the report.
type Section struct {
	Title  string   `json:"title"`
	Intro  string   `json:"intro"`
	Tables []Table  `json:"tables,omitempty"`
	Charts []Chart  `json:"charts,omitempty"`
	Notes  []string `json:"notes,omitempty"` // how it was measured, and what was not
}

// Table is text in rows and columns.
type Table struct {
	Title   string     `json:"title,omitempty"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Chart is a picture of curves.
type Chart struct {
	File   string  `json:"file"` // beside the report
	Title  string  `json:"title"`
	X      string  `json:"x"` // names of the axes, with units
	Y      string  `json:"y"`
	LogX   bool    `json:"log_x,omitempty"`
	LogY   bool    `json:"log_y,omitempty"`
	Steps  bool    `json:"steps,omitempty"` // without dots: there are many points
	Curves []Curve `json:"curves"`
}

// Curve is a line through points.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Add appends a point to a curve, unless it is not a number: that is what was not measured.
func (c *Curve) Add(x, y float64) {
	if !math.IsNaN(y) {
		c.Points = append(c.Points, Point{x, y})
	}
}

// Distribution is the curve of which part of the values, in percent, is at most x. It has 100 points at most, those of
// the percentiles.
func Distribution(name string, values []float64) Curve {
	c := Curve{Name: name}
	if len(values) == 0 {
		return c
	}
	sorted := slices.Sorted(slices.Values(values))
	for percent := 1.; percent <= 100; percent++ {
		c.Points = append(c.Points, Point{sortedQuantile(sorted, percent/100), percent})
	}
	return c
}

// Quantile is the least value that so large a part of all (0 to 1) does not exceed; not a number where there are none.
func Quantile(values []float64, part float64) float64 {
	return sortedQuantile(slices.Sorted(slices.Values(values)), part)
}

func sortedQuantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Spread is the mean of values and their standard deviation; not numbers where there are none.
func Spread(values []float64) (mean, deviation float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / n
	}
	return mean, math.Sqrt(deviation)
}

// Number is a figure as tables have it, three digits; "-" for what was not measured.
func Number(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return rounds.Number(v)
}
