// Package source finds, reads and completes the topology that a user means: the file, the files that it names, and
// what other tools' formats say. All of it happens with the caller's own rights.
package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/wording"
)

// usualNames are looked for first, in this order.
var usualNames = []string{"pergola.yaml", "pergola.yml"}

var topologyEndings = []string{".yaml", ".yml", ".graphml", ".clab.gotmpl"} // .clab.yml is among them

// Find gives the topology file of a directory: pergola.yaml, or else the only one.
func Find(dir string) (string, error) {
	for _, name := range usualNames {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look for a topology file: %w", err)
	}
	var found []string
	for _, e := range entries {
		if isTopology(e.Name()) && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return "", ui.Usage("name a file, or change to the directory of one",
			"there is no topology file here (pergola.yaml, *.yaml, *.clab.yml, *.graphml)")
	case 1:
		return filepath.Join(dir, found[0]), nil
	}
	return "", ui.Usage("name one: "+strings.Join(found, ", "), "there are %s here and none is pergola.yaml",
		wording.Count(len(found), "topology file"))
}

func isTopology(name string) bool {
	return slices.ContainsFunc(topologyEndings, func(e string) bool {
		return strings.HasSuffix(strings.ToLower(name), e)
	})
}

// Described is the name of the network that the topology file of a directory describes, or "".
func Described(dir string) string {
	path, err := Find(dir)
	if err != nil {
		return ""
	}
	name, err := nameIn(path)
	if err != nil {
		return ""
	}
	return name
}

// NameOf gives the network that a word means: the one that a file describes, where the word is a topology file, or
// the word itself.
func NameOf(word string) (string, error) {
	info, err := os.Stat(word)
	switch {
	case err == nil && !info.IsDir() && isTopology(word):
		return nameIn(word)
	case isTopology(word) || strings.ContainsRune(word, filepath.Separator):
		return "", fmt.Errorf("there is no topology file %s", word)
	}
	return word, nil
}
