package datapath

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// PROG=port_ingress: count verified insns by source function
func TestZZProfile(t *testing.T) {
	want := os.Getenv("PROG")
	if want == "" {
		t.Skip()
	}
	spec := must(loadObject())
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelInstruction | ebpf.LogLevelStats, LogSizeStart: 64 << 20}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	p := coll.Programs[want]
	// map insn index -> function by symbols in spec
	ps := spec.Programs[want]
	type fn struct {
		at   int
		name string
	}
	var fns []fn
	it := ps.Instructions.Iterate()
	lines := map[int]string{}
	cur := ""
	for it.Next() {
		if s := it.Ins.Symbol(); s != "" {
			fns = append(fns, fn{int(it.Offset), s})
		}
		if src := it.Ins.Source(); src != nil {
			cur = src.String()
		}
		lines[int(it.Offset)] = cur
	}
	sort.Slice(fns, func(i, j int) bool { return fns[i].at < fns[j].at })
	re := regexp.MustCompile(`^(\d+): \([0-9a-f]{2}\)`)
	counts := map[string]int{}
	per := map[int]int{}
	sc := bufio.NewScanner(strings.NewReader(p.VerifierLog))
	sc.Buffer(make([]byte, 1<<20), 1<<20)
	from := ""
	validating := ""
	byv := map[string]int{}
	for sc.Scan() {
		l := sc.Text()
		if strings.HasPrefix(l, "Validating") {
			validating = l
		}
		m := re.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		n, _ := strconv.Atoi(m[1])
		per[n]++
		for _, f := range fns {
			if f.at <= n {
				from = f.name
			}
		}
		counts[from]++
		byv[validating]++
	}
	for _, k := range sortedKeys(counts) {
		fmt.Printf("%8d %s\n", counts[k], k)
	}
	fmt.Println("--")
	for _, k := range sortedKeys(byv) {
		fmt.Printf("%8d %s\n", byv[k], k)
	}
	if os.Getenv("LINES") != "" {
		byl := map[string]int{}
		for n, c := range per {
			byl[lines[n]] += c
		}
		ks := sortedKeys(byl)
		for i, k := range ks {
			if i > 40 {
				break
			}
			fmt.Printf("%8d %s\n", byl[k], k)
		}
	}
	if f := os.Getenv("LOG"); f != "" {
		os.WriteFile(f, []byte(p.VerifierLog), 0o600)
	}
	log := p.VerifierLog
	fmt.Println(log[max(0, len(log)-900):])
}

func sortedKeys(m map[string]int) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	sort.Slice(ks, func(i, j int) bool { return m[ks[i]] > m[ks[j]] })
	return ks
}
