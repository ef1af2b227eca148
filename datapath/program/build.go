package program

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed include/pergola/*.h include/pergola/run.c
var headers embed.FS

// NoCompilerError says that a compiler is missing, and what brings it.
type NoCompilerError struct {
	Command string // clang
	Package string // of Debian
}

func (e *NoCompilerError) Error() string {
	return fmt.Sprintf("there is no %s, which compiles programs: install it (apt install %s)", e.Command, e.Package)
}

// CompileError is what the compiler said of a source.
type CompileError struct {
	Source string
	Output string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("compile %s: the compiler refuses it", e.Source)
}

// flags with which clang compiles programs. Line information is what errors are explained by; version 3 of the
// instruction set is what Linux 6.1 knows.
var flags = []string{"-target", "bpf", "-ffreestanding", "-nostdlibinc", "-fno-strict-aliasing", "-O2", "-g",
	"-mcpu=v3",
	"-Wall", "-Wextra", "-fno-ident"}

// Build compiles a C file to an object. more are further flags of clang (-I, -D, -W...).
func Build(ctx context.Context, source string, more ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "pergola-program-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	include := filepath.Join(dir, "include")
	if err := WriteHeaders(include); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "program.o")
	// Equal sources make equal objects, wherever they are compiled: debug information names neither this folder
	// nor, where the source is named by its whole path, the caller's.
	args := append(append([]string{}, flags...), "-I", include, "-ffile-prefix-map="+dir+"=")
	if filepath.IsAbs(source) {
		args = append(args, "-fdebug-compilation-dir="+filepath.Dir(source))
	}
	args = append(append(args, more...), "-c", source, "-o", out)
	if err := compile(ctx, &NoCompilerError{"clang", "clang"}, source, args); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// compile runs a compiler. Its messages name the headers as they are included.
func compile(ctx context.Context, missing *NoCompilerError, source string, args []string) error {
	if _, err := os.Stat(source); err != nil {
		return err
	}
	path, err := exec.LookPath(missing.Command)
	if err != nil {
		return missing
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &CompileError{Source: source, Output: strings.TrimSpace(output.String())}
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", missing.Command, err)
	}
	return nil
}

// WriteHeaders puts pergola/*.h into a folder, for compilers and editors: -I DIR.
func WriteHeaders(dir string) error {
	sub, err := fs.Sub(headers, "include")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, sub); err != nil {
		return fmt.Errorf("write the headers: %w", err)
	}
	return nil
}
