package source

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSavedImagesHaveBoundsOfAgeAndSize(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if all, err := SavedImages(time.Now()); err != nil || len(all) != 0 {
		t.Fatalf("without a cache: %v, %v", all, err)
	}
	dir := filepath.Join(cache, "pergola", "images")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	unused := map[string]bool{}
	for _, c := range []struct {
		name   string
		bytes  int64
		age    time.Duration
		unused bool
	}{
		{"busy.tar", savedImagesBytes + 1, time.Minute, false},
		{"large.tar", 1, 2 * time.Hour, true}, // the bound of size is reached
		{"old.tar", 1, savedImagesAge + time.Hour, true},
		{newImage + "1", 1, savedImagesAge + time.Hour, true}, // its command was killed
	} {
		path := filepath.Join(dir, c.name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(c.bytes); err != nil { // sparse
			t.Fatal(err)
		}
		f.Close()
		if err := os.Chtimes(path, now.Add(-c.age), now.Add(-c.age)); err != nil {
			t.Fatal(err)
		}
		unused[path] = c.unused
	}
	all, err := SavedImages(now)
	if err != nil || len(all) != len(unused) {
		t.Fatalf("%v, %v", all, err)
	}
	for _, i := range all {
		if i.Unused != unused[i.Path] {
			t.Errorf("%s: unused: %v", i.Path, i.Unused)
		}
	}
	if removed, err := RemoveUnused(all); err != nil || len(removed) != 3 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if left, err := SavedImages(now); err != nil || len(left) != 1 || filepath.Base(left[0].Path) != "busy.tar" {
		t.Errorf("what stays is %v, %v", left, err)
	}
}

func TestASavedImageThatIsUsedIsYoung(t *testing.T) {
	docker(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	save := func() string {
		path, err := saveImage(t.Context(), dockerStore{}, "ceos:4.32.0F")
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path, old := save(), time.Now().Add(-2*savedImagesAge)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	save()
	if all, err := SavedImages(time.Now()); err != nil || len(all) != 1 || all[0].Unused {
		t.Errorf("%v, %v", all, err)
	}
}
