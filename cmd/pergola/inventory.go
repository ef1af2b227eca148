package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pergola-net/pergola/cmd/pergola/internal/inventory"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/slice"
)

// checkInventory checks the flags of inspect that are about inventories.
func checkInventory(tool, dir string) error {
	switch {
	case tool != "" && !slices.Contains(inventory.Tools, tool):
		return ui.Usage(ui.DidYouMean(tool, "tool", inventory.Tools),
			"--inventory: no inventory is known for %q", tool)
	case tool == "" && dir != "":
		return ui.Usage("such as --inventory ansible", "--output is for inventories")
	case tool == inventory.Nornir && dir == "":
		return ui.Usage("add --output DIRECTORY", "--inventory nornir: Nornir reads several files")
	}
	return nil
}

// inventory writes an inventory of s: into a directory, or without one to standard output.
func (a *app) inventory(s *slice.Slice, tool, dir string) error {
	files, err := inventory.Files(tool, s)
	if err != nil {
		return fmt.Errorf("write the inventory: %w", err)
	}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write the inventory: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if dir == "" {
			_, err = a.Out.Write(files[name])
		} else {
			path := filepath.Join(dir, name)
			if err = os.WriteFile(path, files[name], 0o644); err == nil {
				a.Say("%s written", path)
			}
		}
		if err != nil {
			return fmt.Errorf("write the inventory: %w", err)
		}
	}
	return nil
}
