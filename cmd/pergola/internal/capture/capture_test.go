package capture

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// stream is a capture of n frames.
func stream(t *testing.T, n int) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		frame := make([]byte, 60)
		at := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(frame),
			Length: len(frame)}
		if err := w.WritePacket(at, frame); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

func TestSaveFileKeepsEveryByteAndCountsFrames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	in := stream(t, 3)
	want := bytes.Clone(in.Bytes())
	begun := 0
	frames, err := SaveFile(t.Context(), path, in, func() { begun++ })
	if err != nil || frames != 3 || begun != 1 {
		t.Errorf("got %d frames, %v; begun %d times", frames, err, begun)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
		t.Errorf("%d bytes were written, %d captured", len(got), len(want))
	}
	if _, err := SaveFile(t.Context(), filepath.Join(path, "below"), in,
		func() { t.Error("begun without a file") }); err == nil {
		t.Error("a file below a file")
	}
}

// TestTcpdumpThatCannotWrite is `pergola capture ... | head -1`, no failure that anybody wants to read of, and
// `pergola capture ... >/dev/full`, which is one: tcpdump's status is the same.
func TestTcpdumpThatCannotWrite(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		cause  string
		status int
		says   string
	}{
		{"Broken pipe", 141, ""},
		{"No space left on device", 1,
			"error: run tcpdump: exit status 14: tcpdump: Unable to write output: " +
				"No space left on device\n"},
	} {
		script := "#!/bin/sh\nhead -c 10000 /dev/zero >&2\nprintf '\\ntcpdump: Unable to write output: " +
			c.cause + "\\n' >&2\nexit 14\n"
		if err := os.WriteFile(filepath.Join(bin, "tcpdump"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		term := ui.New(strings.NewReader(""), io.Discard, &said)
		err := Program(t.Context(), term, stream(t, 1), "", "tcpdump")
		term.Fail(err)
		if ui.Code(err) != c.status || said.String() != c.says {
			t.Errorf("%s: status %d, and it said %q; wanted %d and %q", c.cause, ui.Code(err),
				said.String(), c.status, c.says)
		}
	}
}

func TestProgramWritesItsErrors(t *testing.T) {
	var said bytes.Buffer
	err := Program(t.Context(), ui.New(nil, io.Discard, &said), stream(t, 1), "", "sh", "-c",
		"echo no display >&2; exit 3")
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3") || said.String() != "no display\n" {
		t.Errorf("got %v, and it said %q", err, said.String())
	}
}

func TestSaveReadsPcapNG(t *testing.T) {
	var in, out bytes.Buffer
	w, err := pcapgo.NewNgWriter(&in, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: 60, Length: 60},
			make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	size := in.Len()
	if frames, err := Save(t.Context(), &out, &in); frames != 2 || err != nil || out.Len() != size {
		t.Errorf("got %d frames, %d bytes of %d, %v", frames, out.Len(), size, err)
	}
}

func TestSaveOfNothingIsNoError(t *testing.T) {
	if frames, err := Save(t.Context(), io.Discard, strings.NewReader("")); frames != 0 || err != nil {
		t.Errorf("got %d frames, %v", frames, err)
	}
}

func TestSaveOfRubbishIsAnError(t *testing.T) {
	if _, err := Save(t.Context(), io.Discard, strings.NewReader(strings.Repeat("rubbish", 9))); err == nil {
		t.Error("no error")
	}
}

func TestProgramThatIsMissingSaysWhatToDo(t *testing.T) {
	screen := ui.New(nil, io.Discard, io.Discard)
	err := Program(t.Context(), screen, stream(t, 1), "install it", "no-such-program-here")
	if err == nil || err.Error() != "no-such-program-here is not installed here" {
		t.Errorf("got %v", err)
	}
}

func TestProgramReadsTheStream(t *testing.T) {
	var out bytes.Buffer
	in := stream(t, 2)
	want := in.Len()
	if err := Program(t.Context(), ui.New(nil, &out, io.Discard), in, "", "wc", "-c"); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != strconv.Itoa(want) {
		t.Errorf("the program read %s bytes of %d", got, want)
	}
}
