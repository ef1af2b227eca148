package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// sysctl is a kernel parameter of the namespace that the thread is in.
type sysctl struct {
	path  string // below /proc/sys
	value string
}

// parseSysctl takes a user's name, with dots or slashes (sysctl(8)). Only what belongs to a network namespace will do.
func parseSysctl(name, value string) (sysctl, error) {
	path := slice.SysctlPath(name)
	if !slice.NetSysctl(name) || !fs.ValidPath(path) {
		return sysctl{}, fmt.Errorf("set sysctl %s: not a parameter of a network namespace", name)
	}
	return sysctl{path, value}, nil
}

// set writes the value unless it is there: some parameters have side effects even then (ip_forward resets others).
func (s sysctl) set() error {
	if s.is() {
		return nil
	}
	return s.write()
}

func (s sysctl) exists() bool {
	_, err := os.Stat(s.file())
	return err == nil
}

func (s sysctl) is() bool {
	have, err := os.ReadFile(s.file())
	return err == nil &&
		strings.Join(strings.Fields(string(have)), " ") == strings.Join(strings.Fields(s.value), " ")
}

func (s sysctl) write() error {
	err := os.WriteFile(s.file(), []byte(s.value), 0)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set sysctl %s: this kernel has none in a network namespace: %w", s.path,
			os.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s = %s: %w", s.path, s.value, err)
	}
	return nil
}

func (s sysctl) file() string { return filepath.Join("/proc/sys", s.path) }
