// Package examples gives the packet programs of the examples to benchmarks.
package examples

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed programs/*.c
var programs embed.FS

// WriteProgram writes an example of examples/programs into a directory, to be compiled there, and gives its path.
func WriteProgram(dir, name string) (path string, err error) {
	text, err := programs.ReadFile("programs/" + name)
	if err != nil {
		return "", fmt.Errorf("find an example: %w", err)
	}
	path = filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o644)
}
