package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/net/bpf"
)

// CompileFilter turns a filter expression of pcap-filter(7), such as "ospf or icmp6", into what CaptureOptions wants.
// The compiler is tcpdump's: there is none in Go. An empty expression takes everything.
func CompileFilter(ctx context.Context, expression string) ([]bpf.RawInstruction, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, nil
	}
	// The expression is one argument behind "--": no part of it can be an option.
	cmd := exec.CommandContext(ctx, "tcpdump", "-ddd", "-y", "EN10MB", "--", expression)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("compile filter %q: %w; install tcpdump", expression, err)
	}
	if err != nil {
		return nil, fmt.Errorf("compile filter %q: %w: %s", expression, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return parseFilter(out)
}

// parseFilter reads tcpdump's -ddd: the number of instructions, then one on each line as decimals.
func parseFilter(text []byte) ([]bpf.RawInstruction, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Scan()
	var program []bpf.RawInstruction
	for lines.Scan() {
		var i bpf.RawInstruction
		if _, err := fmt.Sscan(lines.Text(), &i.Op, &i.Jt, &i.Jf, &i.K); err != nil {
			return nil, fmt.Errorf("read compiled filter: %w", err)
		}
		program = append(program, i)
	}
	return program, lines.Err()
}
