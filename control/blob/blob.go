// Package blob stores large files, archives of root file systems, under the name of their SHA-256.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// MaxSize bounds one blob, in bytes.
const MaxSize = 16 << 30

// reserve is kept free on the disk, in bytes.
const reserve = 256 << 20

// Errors that callers decide on.
var (
	ErrDigest = errors.New("the content does not have this SHA-256")
	ErrName   = errors.New("not a SHA-256 in hex")
	ErrSize   = fmt.Errorf("larger than %d GiB", MaxSize>>30)
	ErrFull   = errors.New("not enough space on the disk")
)

var name = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Dir is the directory that holds blobs.
type Dir string

// Path is where a blob is, or will be.
func (d Dir) Path(sum string) string { return filepath.Join(string(d), sum) }

// Has reports whether the blob is present.
func (d Dir) Has(sum string) bool {
	if !name.MatchString(sum) {
		return false
	}
	_, err := os.Stat(d.Path(sum))
	return err == nil
}

// Put stores the content of r, if it has the digest. size is in bytes, -1 where it is not known.
func (d Dir) Put(sum string, size int64, r io.Reader) (err error) {
	switch {
	case !name.MatchString(sum):
		return fmt.Errorf("%.80q: %w", sum, ErrName)
	case size > MaxSize:
		return fmt.Errorf("store blob: %w", ErrSize)
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	if err := d.room(max(size, 0)); err != nil {
		return err
	}
	if d.Has(sum) {
		now := time.Now() // sent again: Keep spares it for another hour
		return os.Chtimes(d.Path(sum), now, now)
	}
	f, err := renameio.NewPendingFile(d.Path(sum), renameio.WithTempDir(string(d)))
	if err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	defer func() { _ = f.Cleanup() }() // a temporary file that it cannot remove is removed by Keep
	if err := d.receive(f.File, sum, r); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	return nil
}

func (d Dir) receive(f *os.File, sum string, r io.Reader) error {
	hash := sha256.New()
	const step = 64 << 20 // bytes between checks of the free space
	for total := int64(0); ; {
		n, err := io.CopyN(io.MultiWriter(f, hash), r, step)
		total += n
		switch {
		case errors.Is(err, io.EOF):
			if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
				return fmt.Errorf("store blob %.12s…: %w: it has %.12s…", sum, ErrDigest, got)
			}
			return nil
		case errors.Is(err, unix.ENOSPC):
			return ErrFull
		case err != nil:
			return fmt.Errorf("receive blob %.12s…: %w", sum, err)
		case total > MaxSize:
			return fmt.Errorf("store blob: %w", ErrSize)
		}
		if err := d.room(0); err != nil {
			return err
		}
	}
}

func (d Dir) room(size int64) error { return Room(string(d), size) }

// Room fails with ErrFull where a file of that size would leave the disk of a directory with less than the reserve.
func Room(dir string, size int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < size+reserve {
		return fmt.Errorf("%w: %s has %d MiB free, and %d MiB are needed", ErrFull, dir, free>>20,
			(size+reserve)>>20)
	}
	return nil
}

// grace is for how long Keep spares blobs that no slice names: their topology may not be applied yet.
const grace = time.Hour

// Keep removes all blobs but those in the list and those younger than an hour.
func (d Dir) Keep(sums []string) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	wanted := map[string]bool{}
	for _, sum := range sums {
		wanted[sum] = true
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || wanted[e.Name()] || time.Since(info.ModTime()) < grace {
			continue
		}
		errs = append(errs, os.Remove(d.Path(e.Name())))
	}
	return errors.Join(errs...)
}
