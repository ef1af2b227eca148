// Package rounds takes measurements in rounds: the speed of a machine varies, and within a round it varies least, so
// what is compared is compared round by round.
package rounds

import (
	"math"
	"slices"
	"strconv"
)

// Sample is what one window showed.
type Sample struct {
	Round int     `json:"round"`
	Value float64 `json:"value"`
}

// Median is that of the samples' values; not a number where there are none.
func Median(samples []Sample) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = s.Value
	}
	return Middle(values)
}

// Paired is the median of f over the rounds of which both have a sample.
func Paired(a, b []Sample, f func(a, b float64) float64) float64 {
	var values []float64
	as, bs := Both(a, b)
	for i := range as {
		values = append(values, f(as[i], bs[i]))
	}
	return Middle(values)
}

// Middle is the median; not a number where there are no values.
func Middle(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Table is text in rows and columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Number has three figures, which is more than is certain.
func Number(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
