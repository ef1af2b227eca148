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
	Rounds int    // of which the fastest counts, for each stage and frame
	Repeat int    // runs of a round
	Memory []byte // with which the program's memory begins; see WriteMemory
}

// DefaultMeasurement takes about 10 ms for each frame.
var DefaultMeasurement = Measurement{Rounds: 10, Repeat: 10000}

// A variant of a program ends after so many stages.
type variant struct {
	last uint32
	anew uint32 // 1: each run makes the frame anew, as it came
}

// variants are measured in turn. None but the last one writes the frame; to make it anew costs something before each
// stage that reads it, so only the last stage is measured so.
var variants = []variant{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 1}, {5, 1}}

// Measure runs frames through the program in XDP (BPF_PROG_TEST_RUN), once up to each stage, in turn; a stage's time is
// the difference. Where the program has changed a frame's length, moving it back counts for the last stage. The frames
// run from a warm cache, as those of one busy flow do.
func Measure(o *Object, filters []Filter, frames []Frame, m Measurement) (p Profile, err error) {
	var loaded []*Program
	defer func() {
		for _, v := range loaded {
			err = errors.Join(err, v.Close())
		}
	}()
	for _, v := range variants {
		l, err := o.loadVariant(v)
		if err != nil {
			return p, err
		}
		loaded = append(loaded, l)
		if err := errors.Join(l.SetFilters(filters), l.WriteMemory(m.Memory)); err != nil {
			return p, err
		}
	}
	whole := loaded[len(loaded)-1]
	p = Profile{Instructions: o.Instructions(), Costs: whole.Costs, Frames: len(frames)}
	sums := make([]time.Duration, len(loaded))
	err = OnOneCPU(func(cpu int) error {
		for _, f := range frames {
			best, err := measureFrame(loaded, cpu, f, m)
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
	for i := 1; i < len(sums); i++ {
		if variants[i].last == variants[i-1].last {
			continue
		}
		cost := StageCost{Stage: stageNames[variants[i].last-1], NS: mean(sums[i] - sums[i-1])}
		p.Stages = append(p.Stages, cost)
		p.Total += cost.NS
	}
	return p, nil
}

func (o *Object) loadVariant(v variant) (*Program, error) {
	platform, err := alone.read()
	if err != nil {
		return nil, err
	}
	platform = platform.Copy()
	for name, value := range map[string]uint32{stagesVarLastStage: v.last, stagesVarRewinds: v.anew} {
		if err := platform.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return alone.load(o, platform, Options{})
}

// measureFrame gives the shortest time of a run, up to each stage.
func measureFrame(loaded []*Program, cpu int, f Frame, m Measurement) ([]time.Duration, error) {
	best := slices.Repeat([]time.Duration{time.Hour}, len(loaded))
	for range m.Rounds {
		for i, v := range loaded {
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
