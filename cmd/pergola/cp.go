package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/archive"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

func newCp(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files into a node, or out of it",
		Long: `Copy a file, or a directory with all that is below it, into a node or out of it: one of SOURCE
and DESTINATION is NODE:PATH. Where DESTINATION is a directory that exists, the copy is put into it; else
this is its name. In a node, files belong to root; modes and symbolic links stay. With a shell
pattern such as 'leaf*:PATH' (in quotes), the files are copied into many nodes.

A path of this machine that has a colon is written with ./ before it. The node needs the program tar,
which the machine's own file system and nearly all images have.`,
		Example: `  pergola cp frr.conf denver:/etc/frr/
  pergola cp abilene/denver:/var/log/frr .
  pergola cp keys 'leaf*:/root/keys'`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.cp(cmd.Context(), name, args[0], args[1])
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

// inNode takes NODE:PATH apart; ok is false for a path of this machine.
func inNode(word string) (node, at string, ok bool) {
	node, at, ok = strings.Cut(word, ":")
	if !ok || node == "" || strings.HasPrefix(node, ".") || strings.HasPrefix(node, "/") {
		return "", word, false
	}
	return node, at, true
}

func (a *app) cp(ctx context.Context, name, from, to string) error {
	fromNode, source, out := inNode(from)
	toNode, destination, in := inNode(to)
	switch {
	case in && out:
		return ui.Usage("copy to this machine first", "%s and %s are both in nodes", from, to)
	case !in && !out:
		return ui.Usage("a path in a node is NODE:PATH", "neither %s nor %s is in a node", from, to)
	case in && destination == "" || out && source == "":
		return ui.Usage("such as denver:/etc/frr", "%s names no path in the node", either(toNode, fromNode)+":")
	case out:
		net, node, err := a.node(ctx, name, fromNode)
		if err != nil {
			return err
		}
		defer net.Close()
		if err := (&remote{net, node}).copyOut(ctx, source, destination); err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
		return nil
	}
	net, nodes, err := a.nodes(ctx, name, []string{toNode})
	if err != nil {
		return err
	}
	defer net.Close()
	for _, node := range nodes {
		if err := (&remote{net, node}).copyIn(ctx, source, destination); err != nil {
			return fmt.Errorf("copy %s to %s:%s: %w", from, node, destination, err)
		}
	}
	return nil
}

// remote is a node of a network.
type remote struct {
	*network
	node string
}

// run runs a command there. What the command says in its errors is the error.
func (r *remote) run(ctx context.Context, in io.Reader, out io.Writer, words ...string) error {
	var said bytes.Buffer
	status, err := r.Exec(ctx, r.name, r.node,
		api.ExecRequest{Command: words, Stdin: in, Stdout: out, Stderr: &said})
	switch first, _, _ := strings.Cut(said.String(), "\n"); {
	case err != nil:
		return err
	case status != 0 && first != "":
		return errors.New(first)
	case status != 0:
		return fmt.Errorf("%s ended with status %d", words[0], status)
	}
	return nil
}

// isDir reports whether a path is a directory there.
func (r *remote) isDir(ctx context.Context, at string) (bool, error) {
	status, err := r.Exec(ctx, r.name, r.node, api.ExecRequest{Command: []string{"test", "-d", at}})
	return status == 0, err
}

// parts gives the directory in which a copy is put, and its name there. into says that the destination is a directory.
func parts(source, destination string, into bool) (dir, name string) {
	if into {
		return destination, path.Base(source)
	}
	return path.Dir(path.Clean(destination)), path.Base(destination)
}

func (r *remote) copyIn(ctx context.Context, source, destination string) error {
	if source = filepath.Clean(source); filepath.Base(source) == "." || filepath.Base(source) == ".." {
		var err error // the name that the copy gets
		if source, err = filepath.Abs(source); err != nil {
			return err
		}
	}
	to := path.Join("/", destination)
	into, err := r.isDir(ctx, to)
	if err != nil {
		return err
	}
	if !into && strings.HasSuffix(destination, "/") {
		return fmt.Errorf("the node has no directory %s", to)
	}
	dir, name := parts(filepath.ToSlash(source), to, into)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reader, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(writer, source, name)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			stop() // the node's tar shall not take what was sent for all
			packed <- err
		} else {
			writer.Close()
			packed <- nil
		}
	}()
	err = r.run(ctx, reader, nil, "tar", "-x", "-f", "-", "-C", dir)
	reader.Close()
	if read := <-packed; read != nil {
		return read
	}
	return err
}

func (r *remote) copyOut(ctx context.Context, source, destination string) error {
	from := path.Join("/", source)
	into := isDir(destination)
	if !into && strings.HasSuffix(destination, "/") {
		return fmt.Errorf("there is no directory %s", destination)
	}
	if real, err := filepath.EvalSymlinks(destination); err == nil {
		destination = real
	}
	dir, name := parts(from, filepath.ToSlash(destination), into)
	if !isDir(dir) {
		return &os.PathError{Op: "open", Path: dir, Err: os.ErrNotExist}
	}
	member := strings.TrimPrefix(from, path.Dir(from))
	if member = strings.TrimPrefix(member, "/"); member == "" { // all of the node
		member, name = ".", cmp.Or(strings.Trim(name, "/"), ".")
	}
	reader, writer := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := archive.Unpack(reader, member, dir, name)
		reader.CloseWithError(err)
		unpacked <- err
	}()
	err := r.run(ctx, nil, writer, "tar", "-c", "-f", "-", "-C", path.Dir(from), "--", member)
	writer.CloseWithError(err) // nil: the end of the archive
	if written := <-unpacked; written != nil && !errors.Is(written, err) {
		return written
	}
	return err
}
