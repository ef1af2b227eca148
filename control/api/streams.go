package api

// LogOptions selects output of a node.
type LogOptions struct {
	Tail   int  // last lines; 0: all
	Follow bool // until the context ends
}

// CaptureOptions limits a capture.
type CaptureOptions struct {
	Filter  string // as tcpdump takes it; empty: every frame
	Snaplen int    // bytes kept of a frame; 0: all
	Count   int    // frames; 0: until the context ends
}
