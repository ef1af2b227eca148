package program

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Profile is what a program costs.
type Profile struct {
	Instructions int           `json:"instructions"` // of the slice's code
	Costs        map[Hook]Cost `json:"costs"`
	Stages       []StageCost   `json:"stages"`
	Total        float64       `json:"total_ns"` // of all stages
	Frames       int           `json:"frames"`   // that were measured
}

// StageCost is the time of one stage, as the mean over the frames.
type StageCost struct {
	Stage string  `json:"stage"`
	NS    float64 `json:"ns"`
}

var stageNames = []string{"load", parseStage, "lookup", formatStage, "store"}

const (
	parseStage  = "parse"
	formatStage = "format"
)

// Measurement says how to measure.
type Measurement struct {
	Rounds int // of which the fastest counts, for each stage and frame
	Repeat int // runs of a round
}

// DefaultMeasurement takes about 10 ms for each frame.
var DefaultMeasurement = Measurement{Rounds: 10, Repeat: 10000}

// Measure runs frames through the program in XDP (BPF_PROG_TEST_RUN), once up to each stage, in turn; a stage's time is
// the difference. Each run makes the frame anew, as it came, which is not counted; where the program has changed its
// length, moving it back counts for the last stage. The frames run from a warm cache, as those of one busy flow do.
func Measure(o *Object, filters []Filter, frames []Frame, m Measurement) (p Profile, err error) {
	variants := make([]*Program, len(stageNames)+1)
	defer func() {
		for _, v := range variants {
			if v != nil {
				err = errors.Join(err, v.Close())
			}
		}
	}()
	for last := range variants {
		v, err := o.loadUpTo(last)
		if err != nil {
			return p, err
		}
		variants[last] = v
		if err := v.SetFilters(filters); err != nil {
			return p, err
		}
	}
	whole := variants[len(variants)-1]
	p = Profile{Instructions: o.Instructions(), Costs: whole.Costs, Frames: len(frames)}
	sums := make([]time.Duration, len(variants))
	err = OnOneCPU(func(cpu int) error {
		for _, f := range frames {
			best, err := measureFrame(variants, cpu, f, m)
			if err != nil {
				return err
			}
			for i, d := range best {
				sums[i] += d
			}
		}
		return nil
	})
	if err != nil || len(frames) == 0 {
		return p, err
	}
	mean := func(d time.Duration) float64 { return max(float64(d.Nanoseconds())/float64(len(frames)), 0) }
	for i, name := range stageNames {
		p.Stages = append(p.Stages, StageCost{Stage: name, NS: mean(sums[i+1] - sums[i])})
	}
	p.Total = mean(sums[len(sums)-1] - sums[0])
	return p, nil
}

// loadUpTo loads a program that ends after so many stages.
func (o *Object) loadUpTo(last int) (*Program, error) {
	platform, err := alone.read()
	if err != nil {
		return nil, err
	}
	platform = platform.Copy()
	for name, value := range map[string]uint32{stagesVarLastStage: uint32(last), stagesVarRewinds: 1} {
		if err := platform.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return alone.load(o, platform, Options{})
}

// measureFrame gives the shortest time of a run, up to each stage.
func measureFrame(variants []*Program, cpu int, f Frame, m Measurement) ([]time.Duration, error) {
	best := slices.Repeat([]time.Duration{time.Hour}, len(variants))
	for range m.Rounds {
		for i, v := range variants {
			d, err := v.time(cpu, f, m.Repeat)
			if err != nil {
				return nil, err
			}
			best[i] = min(best[i], d)
		}
	}
	return best, nil
}

func (p *Program) time(cpu int, f Frame, repeat int) (time.Duration, error) {
	frame := stagesProgramFrame{Length: uint64(min(len(f.Data), len(stagesProgramFrame{}.Bytes)))}
	copy(frame.Bytes[:], f.Data)
	var records []stagesProgramRecord
	if err := p.maps[stagesMapProgramRecords].Lookup(uint32(0), &records); err != nil {
		return 0, fmt.Errorf("read the program's record: %w", err)
	}
	records[cpu].Outcome.Start = 0 // this frame has not been moved
	err := errors.Join(p.maps[stagesMapProgramRecords].Put(uint32(0), records),
		p.maps[stagesMapProgramFrames].Put(uint32(0), frame), p.maps[stagesMapProgramInputs].Put(uint32(0),
			f.input()))
	if err != nil {
		return 0, fmt.Errorf("prepare the measurement: %w", err)
	}
	_, d, err := p.programs[XDP].Benchmark(f.Data, repeat, nil)
	if err != nil {
		return 0, fmt.Errorf("run the program with a frame of %d bytes: %w", len(f.Data), err)
	}
	return d, nil
}
