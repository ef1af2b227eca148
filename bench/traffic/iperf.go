package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/kernel/netns"
)

// TCP gives the throughput in bit/s of one TCP stream between two namespaces, as iperf3 measures it in whole seconds.
// Sender and receiver have a core each where there are two.
func TCP(ctx context.Context, from, to *os.File, address netip.Addr, d time.Duration) (float64, error) {
	server := exec.CommandContext(ctx, "taskset", "-c", strconv.Itoa(min(1, runtime.NumCPU()-1)), "iperf3",
		"--server", "--one-off", "--forceflush")
	out, err := server.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := startIn(to, server); err != nil {
		return 0, err
	}
	defer func() {
		_ = server.Process.Kill() // it may have ended by itself
		_ = server.Wait()
	}()
	if _, err := out.Read(make([]byte, 64)); err != nil { // its first words: it listens
		return 0, fmt.Errorf("start iperf3: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	var said, complaint bytes.Buffer
	client := exec.CommandContext(ctx, "taskset", "-c", "0", "iperf3", "--client", address.String(), "--time",
		strconv.Itoa(max(1, int(d.Seconds()))), "--json")
	client.Stdout, client.Stderr = &said, &complaint
	err = startIn(from, client)
	if err == nil {
		err = client.Wait()
	}
	if err != nil {
		return 0, fmt.Errorf("run iperf3: %w: %s%s", err, complaint.Bytes(), said.Bytes())
	}
	return parseIperf(said.Bytes())
}

// startIn starts a program in a namespace.
func startIn(ns *os.File, cmd *exec.Cmd) error {
	return netns.In(ns, cmd.Start)
}

func parseIperf(text []byte) (float64, error) {
	var result struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("parse what iperf3 says: %w", err)
	}
	if result.Error != "" {
		return 0, fmt.Errorf("run iperf3: %s", result.Error)
	}
	return result.End.Received.BitsPerSecond, nil
}
