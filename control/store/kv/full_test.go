package kv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

func TestFullDiskRefusesWritesAndRecovers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root to mount a tmpfs")
		}
		t.Skip("needs root to mount a tmpfs")
	}
	dir := t.TempDir()
	if err := unix.Mount("pergola-test", dir, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	d, err := Open(ctx, Config{Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	has := func(key string) bool {
		t.Helper()
		got, err := d.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Kvs) > 0
	}
	if err := d.Put(ctx, "before", "value"); err != nil {
		t.Fatal(err)
	}

	filler := filepath.Join(dir, "filler")
	d.embedded.etcd.Server.KV().Commit() // etcd itself does so within 100 ms, and dies where it cannot
	fill(t, filler)
	if err := d.Put(ctx, "put", "value"); !errors.Is(err, ErrFull) {
		t.Fatalf("put on a full disk: %v", err)
	}
	if ok, err := d.Commit(ctx, nil, clientv3.OpPut("committed", "value")); ok || !errors.Is(err, ErrFull) {
		t.Fatalf("commit on a full disk: %v, %v", ok, err)
	}
	if has("put") || has("committed") || !has("before") {
		t.Error("something of what was refused is there, or what was there before is not")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(ctx, "put", "value"); err != nil {
		t.Fatal(err)
	}
	d.Close()

	fill(t, filler)
	if _, err := Open(ctx, Config{Dir: filepath.Join(dir, "store")}); !errors.Is(err, ErrFull) {
		t.Errorf("open on a full disk: %v", err)
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// etcd dies where it cannot write, in the middle of its work. A request at that time fails, and does not wait.
func TestARequestFailsWhenEtcdDies(t *testing.T) {
	d := open(t, Config{Dir: t.TempDir()})
	asked := make(chan error)
	go func() {
		asked <- d.unlessDead(func() error {
			d.embedded.fatal("failed to commit tx", unix.ENOSPC)
			<-t.Context().Done() // behind a lock whose holder is gone
			return nil
		})
	}()
	if err := <-asked; !errors.Is(err, unix.ENOSPC) {
		t.Errorf("answer of a dead etcd: %v", err)
	}
}
