package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/pergola-net/pergola/bench/path"
)

// drawing is one plot of a measure against the number of routers.
type drawing struct {
	file    string
	measure path.Measure
	title   string
}

var drawings = []drawing{
	{"path-nic.svg", path.NIC, "64-byte frames from NIC to NIC, one core"},
	{"path-udp.svg", path.UDP, "64-byte frames from a UDP socket, one core"},
	{"path-tcp.svg", path.TCP, "TCP, one stream"},
	{"path-roundtrip.svg", path.ICMPTrip, "Round trip, ICMP echo"},
}

// draw writes the plots of a result into a directory, and gives the names of their files.
func draw(r *path.Result, dir string) ([]drawing, error) {
	var drawn []drawing
	for _, d := range drawings {
		if len(r.Hops(d.measure)) < 2 {
			continue
		}
		if err := d.draw(r, filepath.Join(dir, d.file)); err != nil {
			return nil, fmt.Errorf("draw %s: %w", d.file, err)
		}
		drawn = append(drawn, d)
	}
	return drawn, nil
}

func (d drawing) draw(r *path.Result, file string) error {
	unit, factor := d.measure.Unit()
	p := plot.New()
	p.Title.Text = d.title
	p.X.Label.Text = "routers on the way"
	p.Y.Label.Text = unit
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	hops := r.Hops(d.measure)
	p.X.Tick.Marker = ticks(hops)
	if d.measure == path.ICMPTrip { // between user space and eBPF lie two powers of ten
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Legend.Top = false
	} else {
		p.Y.Min = 0
	}
	for i, network := range path.Networks {
		var points plotter.XYs
		for _, n := range hops {
			y := r.Median(path.Key{Measure: d.measure, Network: network, Routers: n}) * factor
			if !math.IsNaN(y) {
				points = append(points, plotter.XY{X: float64(n), Y: y})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		line.Width = vg.Points(1.5)
		p.Add(line, dots)
		p.Legend.Add(network.Title(), line, dots)
	}
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

// ticks are where there are figures.
func ticks(hops []int) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, n := range hops {
		all = append(all, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	return all
}
