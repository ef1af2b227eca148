package sliver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Left gives the names of the slices in a state directory, in order. It opens no runtime: it is for who wants to know
// what a server left that has ended. The error is an fs.ErrPermission for all users but root.
func Left(stateDir string) ([]string, error) {
	const task = "find the networks that a server left"
	dir := filepath.Join(stateDir, "slices")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf(task+": %w", err)
	}
	var names []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), "slice.json"))
		if errors.Is(err, fs.ErrNotExist) { // half made, or half removed: nothing runs in it
			continue
		}
		var rec sliceRecord
		if err == nil {
			err = json.Unmarshal(data, &rec)
		}
		if err != nil {
			return nil, fmt.Errorf(task+": %w", err)
		}
		names = append(names, rec.Name)
	}
	slices.Sort(names)
	return names, nil
}
