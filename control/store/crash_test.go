package store

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func prefixKeys() []clientv3.OpOption {
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}
}

// TestMain runs the part of a test that is to be killed, when asked to by testkit.Child.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PERGOLA_TEST_STORE"); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// writeForever puts versions of one slice and prints the generation of each that was accepted.
func writeForever(dir string) {
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	for generation := int64(0); ; generation++ {
		spec := network("a", 50+int(generation)%7)
		spec.Attribution = fmt.Sprint(generation + 1)
		if err := s.PutSlice(context.Background(), spec, generation); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(generation + 1)
	}
}

func TestKilledStoreKeepsWhatItAccepted(t *testing.T) {
	dir := t.TempDir()
	child, lines := testkit.Child(t, "PERGOLA_TEST_STORE="+dir)
	var accepted int64
	for range 5 {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
		if _, err := fmt.Sscan(lines.Text(), &accepted); err != nil {
			t.Fatal(lines.Text())
		}
	}
	if _, err := Open(t.Context(), Config{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprint(child.Process.Pid)) {
		t.Errorf("a second server on the directory: %v", err)
	}
	testkit.Kill(child)

	s := open(t, dir)
	spec, r, err := s.Slice(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if r.Generation < accepted {
		t.Errorf("generation %d after the crash, but %d was accepted", r.Generation, accepted)
	}
	if spec.Attribution != fmt.Sprint(r.Generation) || len(spec.Nodes) != r.Nodes {
		t.Errorf("record %+v does not fit its specification (%s, %d nodes)", r, spec.Attribution,
			len(spec.Nodes))
	}
	if n := partCount(t, s); n != 1 {
		t.Errorf("%d parts after the crash, want 1", n)
	}
}

func TestDamagedFilesAreAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, what := range []string{"wal", "snap"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			mustPut(t, s, network("a", 2), 0)
			s.Close()
			files, _ := filepath.Glob(filepath.Join(dir, "etcd", "member", what, "*"))
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				junk := make([]byte, min(info.Size(), 1<<20))
				for i := range junk {
					junk[i] = byte(i*7 + 1)
				}
				if err := os.WriteFile(f, junk, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// In a process of its own: etcd leaves goroutines that write to the directory.
			_, lines := testkit.Child(t, "PERGOLA_TEST_STORE="+dir)
			lines.Scan()
			if line := lines.Text(); !strings.Contains(line, "error: open store in "+dir) ||
				!strings.Contains(line, "move") {
				t.Errorf("it prints %q", line)
			}
		})
	}
}

func TestDeadEtcdIsAnErrorWithinSeconds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	start := time.Now()
	_, err = Open(t.Context(), Config{Endpoints: []string{address}, Timeout: 2 * time.Second})
	if err == nil || !strings.Contains(err.Error(), address) ||
		!strings.Contains(err.Error(), "check that it runs") {
		t.Errorf("error: %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	t.Log(err)
}

func TestExternalEtcdWorksAlike(t *testing.T) {
	endpoint := startExternal(t)
	s, err := Open(t.Context(), Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	changes, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec := network("big", slice.MaxNodes)
	for i := range spec.Nodes {
		spec.Nodes[i].Labels = map[string]string{"token": noise(200)}
	}
	mustPut(t, s, spec, 0)
	if c := <-changes; c != (Change{"big", SpecChanged}) {
		t.Errorf("saw %v", c)
	}
	s.specs.drop("big")
	if got, _, err := s.Slice(t.Context(), "big"); err != nil || len(got.Nodes) != slice.MaxNodes {
		t.Errorf("read back: %v", err)
	}
}
