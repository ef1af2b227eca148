package traffic

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Statistics are those of a namespace's IPv4: /proc/net/snmp.
type Statistics struct{ file *os.File }

// OpenStatistics opens the file in a namespace; it may be read from anywhere.
func OpenStatistics(ns *os.File) (Statistics, error) {
	var s Statistics
	err := netns.In(ns, func() (err error) {
		s.file, err = os.Open("/proc/thread-self/net/snmp")
		return err
	})
	return s, err
}

// Read gives counters such as "Ip:ForwDatagrams", in the order in which they are asked for.
func (s Statistics) Read(names ...string) ([]uint64, error) {
	var buf [4096]byte
	n, err := s.file.ReadAt(buf[:], 0)
	if n == 0 {
		return nil, fmt.Errorf("read statistics: %w", err)
	}
	return parseSNMP(buf[:n], names)
}

// parseSNMP reads pairs of lines: a protocol's names, then its values.
func parseSNMP(text []byte, names []string) ([]uint64, error) {
	all := map[string]string{}
	var head []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(head) == 0 {
			head = words
			continue
		}
		for i := 1; i < min(len(head), len(words)); i++ {
			all[head[0]+head[i]] = words[i]
		}
		head = nil
	}
	values := make([]uint64, len(names))
	for i, name := range names {
		v, err := strconv.ParseUint(all[name], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read statistics: %s is %q", name, all[name])
		}
		values[i] = v
	}
	return values, nil
}

// Close closes the file.
func (s Statistics) Close() error { return s.file.Close() }
