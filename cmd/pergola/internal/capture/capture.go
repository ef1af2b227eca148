// Package capture writes a stream of captured frames to a file or to a program.
package capture

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// frameReader reads frame after frame: pcap and pcapng differ in all else.
type frameReader interface {
	ZeroCopyReadPacketData() (data []byte, ci gopacket.CaptureInfo, err error)
}

// ngMagic begins a pcapng file, in any byte order.
var ngMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// open reads the header of a capture, in either format.
func open(stream io.Reader) (frameReader, error) {
	buffered := bufio.NewReader(stream)
	magic, err := buffered.Peek(len(ngMagic))
	if err != nil {
		return nil, err
	}
	if bytes.Equal(magic, ngMagic) {
		return pcapgo.NewNgReader(buffered, pcapgo.DefaultNgReaderOptions)
	}
	return pcapgo.NewReader(buffered)
}

// Save writes the stream to w and counts its frames. The end of ctx is the normal end of a capture.
func Save(ctx context.Context, w io.Writer, stream io.Reader) (frames int, err error) {
	r, err := open(io.TeeReader(stream, w))
	if err != nil {
		return 0, ended(ctx, err)
	}
	for {
		if _, _, err := r.ZeroCopyReadPacketData(); err != nil {
			return frames, ended(ctx, err)
		}
		frames++
	}
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read the captured frames: %w", err)
}

// SaveFile is Save to a new file. It calls begun when that is there.
func SaveFile(ctx context.Context, path string, stream io.Reader, begun func()) (frames int, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	begun()
	frames, err = Save(ctx, f, stream)
	if err != nil {
		return frames, err
	}
	return frames, f.Close()
}

// Program shows the stream in a program of the caller's machine, which reads it from standard input. It ends when
// the program or the stream does.
func Program(ctx context.Context, t *ui.Terminal, stream io.Reader, missing string, argv ...string) error {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return ui.Advise(fmt.Errorf("%s is not installed here", argv[0]), "%s", missing)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stream, t.Out, t.Err
	var said tail
	if argv[0] == "tcpdump" { // it says much that does not matter; what it says last does, if it fails
		cmd.Stderr = &said
	}
	err := cmd.Run()
	switch last := said.line(); {
	case err == nil || ctx.Err() != nil:
		return nil
	case strings.HasSuffix(last, "Broken pipe"):
		return ui.Exit(128 + int(syscall.SIGPIPE)) // the reader of its output has ended
	case last != "":
		return fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, last)
	}
	return fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
}

// tail keeps the end of what is written to it.
type tail []byte

func (w *tail) Write(p []byte) (int, error) {
	const most = 4096
	*w = append(*w, p...)
	*w = append((*w)[:0], (*w)[max(0, len(*w)-most):]...)
	return len(p), nil
}

func (w *tail) line() string {
	text := bytes.TrimSpace(*w)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
