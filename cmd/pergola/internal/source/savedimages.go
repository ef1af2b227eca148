package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of the images that stay in the caller's cache. One that was used a short time ago stays whatever its size is:
// a command may be sending it.
const (
	savedImagesAge   = 14 * 24 * time.Hour
	savedImagesBytes = 10 << 30
	savedImagesBusy  = time.Hour
)

// SavedImage is an archive of an image, in the caller's cache.
type SavedImage struct {
	Path   string    `json:"path"`
	Bytes  int64     `json:"bytes"`
	Used   time.Time `json:"used"`             // last
	Unused bool      `json:"unused,omitempty"` // beyond the bounds of age or size
}

func imagesDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "pergola", "images"), err
}

// SavedImages lists the archives in the caller's cache, what was used last first.
func SavedImages(now time.Time) (all []SavedImage, err error) {
	dir, err := imagesDir()
	if err != nil {
		return nil, fmt.Errorf("list saved images: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list saved images: %w", err)
	}
	for _, e := range entries {
		// A file that is being written has another name; where its command was killed, it stays as one.
		if !strings.HasSuffix(e.Name(), ".tar") && !strings.HasPrefix(e.Name(), newImage) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list saved images: %w", err)
		}
		path := filepath.Join(dir, e.Name())
		all = append(all, SavedImage{Path: path, Bytes: info.Size(), Used: info.ModTime()})
	}
	slices.SortFunc(all, func(a, b SavedImage) int { return b.Used.Compare(a.Used) })
	bytes := int64(0)
	for i := range all {
		bytes += all[i].Bytes
		age := now.Sub(all[i].Used)
		all[i].Unused = age > savedImagesAge || bytes > savedImagesBytes && age > savedImagesBusy
	}
	return all, nil
}

// RemoveUnused removes those images that are unused, and gives them.
func RemoveUnused(images []SavedImage) (removed []SavedImage, err error) {
	for _, i := range images {
		if !i.Unused {
			continue
		}
		if err := os.Remove(i.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("remove a saved image: %w", err)
		}
		removed = append(removed, i)
	}
	return removed, nil
}
