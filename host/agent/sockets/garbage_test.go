package sockets

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/sdk/message"
)

// FuzzSocket sends garbage in messages of random lengths by a real socket, pieces of requests among it, and file
// descriptors beside some. Each message is answered, and the connection answers a request afterwards.
func FuzzSocket(f *testing.F) {
	const request = `{"id": 1, "do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, "remove": true}]}`
	for seed := range uint64(40) {
		f.Add(seed, []byte(request))
	}
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), []byte{0})
	b := newBed(f)
	b.shares[7].rate.SetLimit(rate.Inf)
	c := b.raw(f, "west")
	f.Fuzz(func(t *testing.T, seed uint64, piece []byte) {
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(seed, 0))
		for range 1 + random.IntN(6) {
			answered(t, c, garbage(random, piece), random.IntN(4) == 0)
		}
		if got := ask(t, c, `{"id": 7, "do": "hello"}`); !strings.Contains(got, `"id":7,"ok":{`) {
			t.Errorf("afterwards, hello is answered %s", got)
		}
	})
}

// garbage is a message of some length: of random bytes, or of a piece that is repeated, cut and damaged.
func garbage(random *rand.Rand, piece []byte) []byte {
	lengths := []int{1, 4, 200, 5000, message.MaxSize + 2}
	data := make([]byte, 1+random.IntN(lengths[random.IntN(len(lengths))]))
	if len(piece) == 0 || random.IntN(3) == 0 {
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		return data
	}
	for at := 0; at < len(data); at += len(piece) {
		copy(data[at:], piece)
	}
	for range random.IntN(4) {
		data[random.IntN(len(data))] = byte(random.Uint32())
	}
	if random.IntN(3) == 0 {
		return append([]byte(nil), piece...)
	}
	return data
}

// answered sends a message, with a file descriptor or without, and reads all messages of its answer.
func answered(t *testing.T, c *net.UnixConn, data []byte, withFile bool) {
	t.Helper()
	var rights []byte
	if withFile {
		rights = unix.UnixRights(int(os.Stderr.Fd()))
	}
	if _, _, err := c.WriteMsgUnix(data, rights, nil); err != nil {
		t.Fatalf("send %d bytes: %v", len(data), err)
	}
	answer := make([]byte, message.MaxSize+1)
	for more := true; more; {
		n, err := c.Read(answer)
		if err != nil {
			t.Fatalf("%d bytes (%.60q) are not answered: %v", len(data), data, err)
		}
		var a message.Answer
		if err := json.Unmarshal(answer[:n], &a); err != nil || (a.Error == "") == (a.OK == nil) {
			t.Fatalf("%.60q is answered %s: %v", data, answer[:n], err)
		}
		more = a.More
	}
}

// What a sliver sends beside its messages costs the agent nothing: it has limits on open files.
func TestFilesThatASliverSendsAreNotKept(t *testing.T) {
	const files = 50
	b := newBed(t)
	c := b.raw(t, "west")
	answered(t, c, []byte("{}"), true)
	before := openFiles(t)
	for i := range files {
		answered(t, c, fmt.Appendf(nil, `{"id": %d, "do": "hello"}`, i), true)
	}
	if after := openFiles(t); after >= before+files {
		t.Errorf("%d files were open, and are %d", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// An empty message is the end of a connection, as the kernel tells it. Others go on.
func TestAnEmptyMessageEndsItsConnectionAlone(t *testing.T) {
	b := newBed(t)
	empty, other := b.raw(t, "west"), b.raw(t, "west")
	if err := unixSend(empty, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := empty.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("the connection is answered %d bytes, %v", n, err)
	}
	answered(t, other, []byte("garbage"), false)
}

func unixSend(c *net.UnixConn, data []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), data, unix.MSG_EOR, nil)
		return true
	})
	if err != nil {
		return err
	}
	return sent
}
