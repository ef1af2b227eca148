package report

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/model/wording"
)

// BuiltProgram is a packet program that was compiled and may run.
type BuiltProgram struct {
	File         string                        `json:"file"`
	Object       *program.Object               `json:"-"`
	Instructions int                           `json:"instructions"`
	Costs        map[program.Hook]program.Cost `json:"costs,omitempty"` // nil: the kernel was not asked
}

// String is one line.
func (b BuiltProgram) String() string {
	var has []string
	if b.Object.Memory.Count > 0 {
		has = append(has, "memory of "+b.Object.Memory.String())
	}
	if n := len(b.Object.Counters); n > 0 {
		has = append(has, wording.Count(n, "counter"))
	}
	if n := len(b.Object.Key); n > 0 {
		has = append(has, "a key of "+wording.Count(n, "field"))
	}
	text := fmt.Sprintf("%s: %s", b.File, wording.Count(b.Instructions, "instruction"))
	if len(has) > 0 {
		text += ", " + strings.Join(has, ", ")
	}
	if b.Costs == nil {
		return text + "; not shown to the kernel, which takes root"
	}
	c := b.Costs[program.XDP]
	return fmt.Sprintf("%s; the kernel accepts it (%d of %d instructions verified, %d of %d bytes of stack)",
		text, c.Verified, program.MaxVerified, c.Stack, program.MaxStack)
}

// ProgramTest is what became of frames that went through a program.
type ProgramTest struct {
	Frames   []ProgramRun      `json:"frames"`
	Counters map[string]uint64 `json:"counters,omitempty"`
	Hits     []uint64          `json:"hits,omitempty"` // of filters, as they were given
}

// ProgramRun is what became of one frame.
type ProgramRun struct {
	Frame     int    `json:"frame"` // number in the file, from 1
	In        string `json:"in"`    // in hexadecimal
	Interface uint32 `json:"in_interface"`
	program.Outcome
	KeyFields map[string]string `json:"key_fields,omitempty"`
	Out       string            `json:"out,omitempty"` // in hexadecimal; absent where none goes out

	came   []byte
	fields []program.Field
}

// NewProgramRun describes a run.
func NewProgramRun(number int, f program.Frame, o program.Outcome, fields []program.Field) ProgramRun {
	r := ProgramRun{Frame: number, In: hex.EncodeToString(f.Data), Interface: f.Interface, Outcome: o,
		Out: hex.EncodeToString(o.Data), came: f.Data, fields: fields}
	for _, field := range fields {
		if r.KeyFields == nil {
			r.KeyFields = map[string]string{}
		}
		r.KeyFields[field.Name] = field.Value(o.Key)
	}
	return r
}

// String is a few lines: frame, key, filter, verdict, and the bytes that changed.
func (r ProgramRun) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "frame %d: %s by interface %d\n", r.Frame, wording.Count(len(r.came), "byte"), r.Interface)
	if key := r.key(); key != "" {
		fmt.Fprintf(&b, "  key     %s\n", key)
	}
	if r.Filter > 0 {
		fmt.Fprintf(&b, "  filter  %d (table %d): %s\n", r.Filter, r.Table, r.Result)
	} else if key := bytes.Trim(r.Key, "\x00"); len(key) > 0 {
		fmt.Fprintf(&b, "  filter  none of table %d\n", r.Table)
	}
	fmt.Fprintf(&b, "  %s", r.verdict())
	if r.Leaves() {
		b.WriteString(FrameDiff(r.came, r.Data, r.Start))
	}
	for i, o := range r.Copies {
		c := r
		c.Outcome = o
		fmt.Fprintf(&b, "\n  copy %d  filter %d: %s\n  %s", i+1, o.Filter, o.Result, c.verdict())
		if o.Leaves() {
			b.WriteString(FrameDiff(r.came, o.Data, o.Start))
		}
	}
	return b.String()
}

func (r ProgramRun) key() string {
	key := bytes.TrimRight(r.Key, "\x00")
	if len(key) == 0 {
		return ""
	}
	if len(r.fields) == 0 {
		return hex.EncodeToString(key)
	}
	var parts []string
	for _, f := range r.fields {
		parts = append(parts, f.Name+"="+r.KeyFields[f.Name])
	}
	return strings.Join(parts, " ")
}

func (r ProgramRun) verdict() string {
	var text string
	switch r.Verdict {
	case program.Send:
		text = fmt.Sprintf("send    by interface %d", r.Output)
	case program.Flood:
		text = "flood   by interfaces " + program.FormatInterfaces(r.Flood)
	case program.UDP:
		text = "udp     to " + r.To.String()
	case program.Punt:
		text = fmt.Sprintf("punt    reason %d", r.Reason)
	default:
		text = r.Verdict.String()
	}
	if r.Queue != 0 {
		text += fmt.Sprintf(", queue %d", r.Queue)
	}
	if r.Flow != 0 {
		text += fmt.Sprintf(", flow %d", r.Flow)
	}
	if r.Fault != "" {
		return text + "; dropped by the platform: " + r.Fault
	}
	if r.Leaves() {
		text += ", " + wording.Count(len(r.Data), "byte")
	}
	return text
}

// FrameDiff shows the rows of 16 bytes in which two frames differ, as they came (-) and as they leave (+). Offsets are
// those of the frame that came; start is where the other begins in it.
func FrameDiff(came, leaves []byte, start int) string {
	const row = 16
	var b strings.Builder
	first := min(start, 0)
	if first%row != 0 {
		first -= row + first%row
	}
	end := max(len(came), len(leaves)+start)
	for at := first; at < end; at += row {
		old, now := hexRow(came, at, row), hexRow(leaves, at-start, row)
		if old == now {
			continue
		}
		if strings.TrimSpace(old) != "" {
			fmt.Fprintf(&b, "\n  - %5d  %s", at, strings.TrimRight(old, " "))
		}
		if strings.TrimSpace(now) != "" {
			fmt.Fprintf(&b, "\n  + %5d  %s", at, strings.TrimRight(now, " "))
		}
	}
	return b.String()
}

// hexRow shows n bytes from an offset, which may lie before them; what is not there is blank.
func hexRow(data []byte, at, n int) string {
	var b strings.Builder
	for i := at; i < at+n; i++ {
		if i < 0 || i >= len(data) {
			b.WriteString("   ")
			continue
		}
		fmt.Fprintf(&b, "%02x ", data[i])
	}
	return b.String()
}

// Counters are shown in their order, without those that are zero.
func Counters(names []string, values map[string]uint64) string {
	var all []string
	for _, name := range names {
		if values[name] > 0 {
			all = append(all, fmt.Sprintf("%s %d", name, values[name]))
		}
	}
	if all == nil {
		return "all 0"
	}
	return strings.Join(all, ", ")
}

// Hits are those of filters, by their numbers, without those that nothing hit.
func Hits(all []uint64) string {
	var text []string
	for i, n := range all {
		if n > 0 {
			text = append(text, fmt.Sprintf("filter %d %d", i+1, n))
		}
	}
	if text == nil {
		return "none"
	}
	return strings.Join(text, ", ")
}

// ProgramStages is the table of what each stage costs.
func ProgramStages(p program.Profile) *ui.Table {
	t := &ui.Table{Columns: []string{"STAGE", "NS"}}
	for _, s := range p.Stages {
		t.Row(s.Stage, fmt.Sprintf("%.0f", s.NS))
	}
	t.Row("total", fmt.Sprintf("%.0f", p.Total))
	return t
}

// ProgramCosts is what the kernel says of a program.
func ProgramCosts(p program.Profile) string {
	c := p.Costs[program.XDP]
	return fmt.Sprintf("%s, of which the verifier looked at %d (at most %d); %d bytes of stack (at most %d); %s",
		wording.Count(p.Instructions, "instruction"), c.Verified, program.MaxVerified, c.Stack,
		program.MaxStack,
		wording.Count(p.Frames, "frame")+" measured")
}
