package agent

import (
	"context"
	"log/slog"
	"os"

	"github.com/pergola-net/pergola/agent/wire"
)

// What datapath/mirror and datapath/fib will be.
type (
	mirrorRouter struct {
		Slice uint32
		NetNS *os.File
		Legs  map[int]int
		Off   bool
	}
	mirrorStatus struct {
		IPv4, IPv6             []string
		Routes, Neighbours     int
		Resyncs, Audits, Found uint64
		Trouble                error
	}
	mirrorDifference struct{ What, Kernel, Mirror string }
	stubMirror       struct{}
	stubFIB          struct{}
	stubUsage        struct {
		Nodes, NodesBound, Nexthops, NexthopsBound, Neighbours, NeighboursBound, Routers, RoutersBound int
		Bytes, BytesBound                                                                              int64
	}
)

func openMirror(*wire.Substrate, *slog.Logger) (*stubMirror, *stubFIB, error) {
	return &stubMirror{}, &stubFIB{}, nil
}

func (*stubMirror) Set(string, mirrorRouter) error { return nil }
func (*stubMirror) Remove(string)                  {}
func (*stubMirror) Close() error                   { return nil }
func (*stubMirror) Status(string) mirrorStatus     { return mirrorStatus{} }
func (*stubMirror) Verify(context.Context, string) ([]mirrorDifference, error) {
	return nil, nil
}
func (*stubFIB) Close() error      { return nil }
func (*stubFIB) Earlier() []int    { return nil }
func (*stubFIB) DropLeg(int) error { return nil }
func (*stubFIB) Reclaim() error    { return nil }
func (*stubFIB) Usage() stubUsage  { return stubUsage{} }
