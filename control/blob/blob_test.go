package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestPutChecksTheDigest(t *testing.T) {
	d := Dir(t.TempDir())
	if err := d.Put(sumOf("a"), 1, strings.NewReader("b")); !errors.Is(err, ErrDigest) {
		t.Errorf("wrong content: %v", err)
	}
	for _, bad := range []string{"", "..", "../../etc/passwd", strings.Repeat("G", 64)} {
		if err := d.Put(bad, 1, strings.NewReader("a")); !errors.Is(err, ErrName) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	if entries, _ := os.ReadDir(string(d)); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	if err := d.Put(sumOf("a"), -1, strings.NewReader("a")); err != nil || !d.Has(sumOf("a")) {
		t.Errorf("put: %v", err)
	}
	if err := d.Put(sumOf("a"), MaxSize+1, strings.NewReader("a")); !errors.Is(err, ErrSize) {
		t.Errorf("too large: %v", err)
	}
}

func TestKeepRemovesWhatIsOldAndNotNamed(t *testing.T) {
	d := Dir(t.TempDir())
	for _, s := range []string{"named", "young", "old"} {
		if err := d.Put(sumOf(s), -1, strings.NewReader(s)); err != nil {
			t.Fatal(err)
		}
		if s != "young" {
			then := time.Now().Add(-2 * grace)
			if err := os.Chtimes(d.Path(sumOf(s)), then, then); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Keep([]string{sumOf("named")}); err != nil {
		t.Fatal(err)
	}
	if !d.Has(sumOf("named")) || !d.Has(sumOf("young")) || d.Has(sumOf("old")) {
		t.Error("want named and young kept, old removed")
	}
	if err := Dir("/nonexistent").Keep(nil); err != nil {
		t.Error(err)
	}
}
