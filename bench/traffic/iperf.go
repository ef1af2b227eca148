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

// iperfPatience is how much longer than its stream iperf3 may take.
const iperfPatience = 10 * time.Second

// TCP gives the throughput in bit/s of one TCP stream between two namespaces, as iperf3 measures it in whole seconds.
// Sender and receiver have a core each where there are two.
func TCP(ctx context.Context, from, to *os.File, address netip.Addr, d time.Duration) (float64, error) {
	return iperf(ctx, from, to, address, d)
}

// UDPLength is how many bytes the datagrams of UDP have.
const UDPLength = 1400

// UDPStream is TCP, for datagrams that are sent as fast as they are taken: it gives what arrives.
func UDPStream(ctx context.Context, from, to *os.File, address netip.Addr, d time.Duration) (float64, error) {
	return iperf(ctx, from, to, address, d, "--udp", "--bitrate", "0", "--length", strconv.Itoa(UDPLength))
}

func iperf(ctx context.Context, from, to *os.File, address netip.Addr, d time.Duration, flags ...string) (
	float64, error,
) {
	ctx, cancel := context.WithTimeout(ctx, d+iperfPatience)
	defer cancel()
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
	client := exec.CommandContext(ctx, "taskset", append([]string{"-c", "0", "iperf3", "--client",
		address.String(), "--time", strconv.Itoa(max(1, int(d.Seconds()))), "--json"}, flags...)...)
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
			Sum struct { // of UDP
				BitsPerSecond float64 `json:"bits_per_second"`
				Packets       float64 `json:"packets"`
				Lost          float64 `json:"lost_packets"`
			} `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("parse what iperf3 says: %w", err)
	}
	if result.Error != "" {
		return 0, fmt.Errorf("run iperf3: %s", result.Error)
	}
	if sum := result.End.Sum; sum.Packets > 0 { // bits are those that were sent
		return sum.BitsPerSecond * (1 - sum.Lost/sum.Packets), nil
	}
	return result.End.Received.BitsPerSecond, nil
}
