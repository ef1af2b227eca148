package program

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// explain turns what the verifier says into what a user can act on. spec is what was to be loaded.
func (o *Object) explain(spec *ebpf.CollectionSpec, err error) error {
	if errors.Is(err, unix.EFAULT) { // seen with a loop without an end, on Linux 6.18
		return &RefusedError{Object: o.Name,
			Problem: "the kernel's verifier gave up on it with an error of its own",
			Advice:  "write loops over a constant, small number of turns"}
	}
	var verifier *ebpf.VerifierError
	if !errors.As(err, &verifier) {
		return err
	}
	if errors.Is(err, unix.E2BIG) {
		return o.tooComplex(verifier)
	}
	log := verifier.Log
	hook, code := failed(spec, err)
	if detailed := trace(spec, hook); detailed != nil {
		log = detailed
	}
	complaint := complaintOf(log)
	problem, advice := translate(complaint)
	refused := &RefusedError{Object: o.Name, Problem: problem, Advice: advice, Log: log}
	o.locate(refused, code, log)
	return refused
}

func (o *Object) tooComplex(verifier *ebpf.VerifierError) error {
	return &RefusedError{Object: o.Name, Log: verifier.Log,
		Problem: "the verifier gave up after a million instructions: " +
			"a loop has no end or many turns, or there are too many branches",
		Advice: "loop over a constant, small number, and do less for each frame"}
}

// failed says which of the programs the error is about.
func failed(spec *ebpf.CollectionSpec, err error) (string, asm.Instructions) {
	for name := range spec.Programs {
		if strings.Contains(err.Error(), "program "+name+":") {
			return name, spec.Programs[name].Instructions
		}
	}
	return "", nil
}

// trace loads one program again, with a log that says at which instruction the verifier was. nil: it could not be had.
func trace(spec *ebpf.CollectionSpec, name string) []string {
	if name == "" {
		return nil
	}
	alone := spec.Copy()
	alone.Programs = map[string]*ebpf.ProgramSpec{name: alone.Programs[name]}
	c, err := ebpf.NewCollectionWithOptions(alone,
		ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelBranch}})
	if err == nil {
		c.Close()
		return nil
	}
	var verifier *ebpf.VerifierError
	if !errors.As(err, &verifier) {
		return nil
	}
	return verifier.Log
}

var (
	statistics = regexp.MustCompile(`^(processed \d+ insns|verification time|stack depth|` +
		`mark_precise|cur state:|old state:)`)
	instruction = regexp.MustCompile(`^(\d+): \([0-9a-f]{2}\)`)
)

// complaintOf is the last line that says what is wrong.
func complaintOf(log []string) string {
	for _, line := range slices.Backward(log) {
		if text := strings.TrimSpace(line); text != "" && !statistics.MatchString(text) &&
			!instruction.MatchString(text) && text[0] != ';' {
			return text
		}
	}
	return ""
}

// locate finds the source line of the last instruction that the log has.
func (o *Object) locate(refused *RefusedError, code asm.Instructions, log []string) {
	for _, line := range slices.Backward(log) {
		at := instruction.FindStringSubmatch(line)
		if at == nil {
			continue
		}
		n, err := strconv.Atoi(at[1])
		if err != nil {
			return
		}
		function, source := find(code, n)
		if name, ok := o.isSlices(function); ok {
			refused.Function = stageName(name)
			if source != nil {
				refused.File, refused.Line = fileName(source), int(source.LineNumber())
			}
		}
		return
	}
}

// find gives the function and the source line of the raw instruction with this number.
func find(code asm.Instructions, number int) (function string, source *btf.Line) {
	iter := code.Iterate()
	for iter.Next() {
		if int(iter.Offset) > number {
			break
		}
		if name := iter.Ins.Symbol(); name != "" {
			function, source = name, nil
		}
		if line, ok := iter.Ins.Source().(*btf.Line); ok {
			source = line
		}
	}
	return function, source
}

// translations of what the verifier says, by patterns that Linux 6.1 and newer have. The first that matches counts.
var translations = []struct {
	pattern         *regexp.Regexp
	problem, advice string
}{
	{regexp.MustCompile(`infinite loop detected|back-edge`), "has a loop without an end",
		"count to a constant: for (int i = 0; i < 16; i++)"},
	{regexp.MustCompile(`invalid access to (memory, mem_size=|map value)`),
		"reads or writes beyond the window, or beyond memory",
		"compare the offset with the size first; pergola_at() does"},
	{regexp.MustCompile(`min value is negative|unbounded (memory access|min value)|` +
		`outside of the (allowed )?(memory|array) range`),
		"computes an offset that may lie beyond the window, or beyond memory",
		"use pergola_at(packet, offset, size), and test its result for NULL"},
	{regexp.MustCompile(`invalid mem access '(map_value|mem)_or_null'`), "uses a pointer that may be NULL",
		"test it first: pergola_memory() and pergola_at() may return NULL"},
	{regexp.MustCompile(`invalid mem access '(scalar|inv|unknown)'`), "uses a number as a pointer",
		"keep pointers in pointer variables, and do not compute with them"},
	{regexp.MustCompile(`invalid ((indirect |variable-offset )?read from|write to) stack|` +
		`stack .*out of bounds|invalid stack`),
		"reads a local variable that was not set, or beyond one", "give it a value when you declare it"},
	{regexp.MustCompile(`!read_ok`), "uses a value that was not set",
		"give the variable a value, and return one from every path"},
	{regexp.MustCompile(`combined stack size|stack size .* too large|call stack of \d+ frames is too deep`),
		"needs too much stack",
		"keep large variables in PERGOLA_SCRATCH"},
	{regexp.MustCompile(`write into map forbidden|cannot write into rdonly`), "writes to a constant", ""},
	{regexp.MustCompile(`unreachable insn`), "has code that nothing reaches", ""},
	{regexp.MustCompile(`At program exit|R0 .*exit`), "returns something that is no verdict",
		"return an enum pergola_verdict"},
	{regexp.MustCompile(`pointer arithmetic|bitwise operator|prohibited|leaks addr|pointer comparison`),
		"computes with an address, or stores one", "store offsets, not pointers"},
}

func translate(complaint string) (problem, advice string) {
	for _, t := range translations {
		if t.pattern.MatchString(complaint) {
			return t.problem + " (" + complaint + ")", t.advice
		}
	}
	return "the kernel's verifier refuses it: " + complaint, "`-v` shows all that it says"
}
