package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/pergola-net/pergola/bench/path"
)

// plots are the pictures that go with scenarios, by name.
type plots map[string][]picture

// picture is a file beside the report.
type picture struct{ file, title string }

// show puts pictures into the report.
func show(b *strings.Builder, pictures []picture) {
	for _, p := range pictures {
		fmt.Fprintf(b, "\n![%s](%s)\n", p.title, p.file)
	}
}

// draw writes all plots into a directory. With an error come those that could be drawn.
func (d *document) draw(dir string) (plots, error) {
	all := plots{}
	var errs []error
	for _, m := range d.Scenarios {
		var err error
		switch {
		case m.Path != nil:
			all[m.Name], err = drawPath(m.Path, dir)
		case m.Tunnels != nil:
			all[m.Name], err = drawTunnels(m.Tunnels, dir)
		case m.Queues != nil:
			all[m.Name], err = drawQueues(m.Name, m.Queues, dir)
		case m.Section != nil:
			all[m.Name], err = drawCharts(m.Section.Charts, dir)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// newPlot makes an empty one that begins at zero.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top = true
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	return p
}

// addLine draws a line, the one of that number, through points, of which some may not be there.
func addLine(p *plot.Plot, number int, title string, points plotter.XYs) error {
	var there plotter.XYs
	for _, xy := range points {
		if !math.IsNaN(xy.Y) {
			there = append(there, xy)
		}
	}
	if len(there) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(there)
	if err != nil {
		return err
	}
	line.Color, dots.Color, dots.Shape = plotutil.Color(number), plotutil.Color(number), plotutil.Shape(number)
	line.Width = vg.Points(1.5)
	if number >= len(plotutil.SoftColors) { // colours come again
		line.Dashes = plotutil.Dashes(1)
	}
	p.Add(line, dots)
	p.Legend.Add(title, line, dots)
	return nil
}

func save(p *plot.Plot, dir, file string) error {
	if err := p.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return nil
}

// ticks are where there are figures.
func ticks(at []int) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, n := range at {
		all = append(all, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	return all
}

// pathDrawings are measures against the number of routers.
var pathDrawings = []struct {
	picture
	measure path.Measure
}{
	{picture{"path-nic.svg", "64-byte frames from NIC to NIC, one core"}, path.NIC},
	{picture{"path-udp.svg", "64-byte frames from a UDP socket, one core"}, path.UDP},
	{picture{"path-tcp.svg", "TCP, one stream"}, path.TCP},
	{picture{"path-roundtrip.svg", "Round trip, ICMP echo"}, path.ICMPTrip},
}

func drawPath(r *path.Result, dir string) ([]picture, error) {
	var drawn []picture
	for _, d := range pathDrawings {
		hops := r.Hops(d.measure)
		if len(hops) < 2 {
			continue
		}
		unit, factor := d.measure.Unit()
		p := newPlot(d.title, "routers on the way", unit)
		p.X.Tick.Marker = ticks(hops)
		if d.measure == path.ICMPTrip { // between user space and eBPF lie two powers of ten
			p.Y.Scale, p.Y.Tick.Marker, p.Y.Min = plot.LogScale{}, plot.LogTicks{Prec: -1}, math.Inf(1)
			p.Legend.Top = false
		}
		for i, network := range path.Networks {
			var points plotter.XYs
			for _, n := range hops {
				points = append(points, plotter.XY{X: float64(n),
					Y: r.Median(path.Key{Measure: d.measure, Network: network,
						Routers: n}) * factor})
			}
			if err := addLine(p, i, network.Title(), points); err != nil {
				return drawn, err
			}
		}
		if err := save(p, dir, d.file); err != nil {
			return drawn, err
		}
		drawn = append(drawn, d.picture)
	}
	return drawn, nil
}
