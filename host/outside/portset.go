package outside

import (
	"fmt"
	"strconv"
	"strings"
)

// portSet is a set of ports: 64 in each word.
type portSet [1 << 16 / 64]uint64

func (s *portSet) add(port uint16) { s[port/64] |= 1 << (port % 64) }

func (s *portSet) has(port int) bool { return s[port/64]>>(port%64)&1 != 0 }

func (s portSet) plus(other portSet) portSet {
	for i := range s {
		s[i] |= other[i]
	}
	return s
}

func (s portSet) minus(other portSet) portSet {
	for i := range s {
		s[i] &^= other[i]
	}
	return s
}

// String writes it as the kernel does: 80,8000-8099, in ascending order, ranges as long as they can be.
func (s portSet) String() string {
	var parts []string
	for first := 0; first < 1<<16; first++ {
		if !s.has(first) {
			continue
		}
		last := first
		for last+1 < 1<<16 && s.has(last+1) {
			last++
		}
		text := strconv.Itoa(first)
		if last > first {
			text += "-" + strconv.Itoa(last)
		}
		parts = append(parts, text)
		first = last
	}
	return strings.Join(parts, ",")
}

// parsePortSet is the reverse.
func parsePortSet(text string) (s portSet, err error) {
	if text == "" {
		return s, nil
	}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || a > b {
			return s, fmt.Errorf("%q is no list of ports", text)
		}
		for p := a; p <= b; p++ {
			s.add(uint16(p))
		}
	}
	return s, nil
}
