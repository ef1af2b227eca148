package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/file"
)

// Transports of images in the stores of this machine, named as skopeo(1) and podman(1) name them.
const (
	dockerDaemon      = "docker-daemon:"      // the store of the Docker that the caller may use
	containersStorage = "containers-storage:" // the caller's own store of Podman
)

const storeTimeout = 5 * time.Second // to say whether there is an image

// imageStore is a store of images on this machine.
type imageStore interface {
	id(ctx context.Context, ref string) (string, error)      // of the image; errNoImage where there is none
	save(ctx context.Context, ref string, to *os.File) error // as an archive with layers
}

var errNoImage = errors.New("there is no such image")

var imageStores = map[string]imageStore{dockerDaemon: dockerStore{}, containersStorage: podmanStore{}}

// localImage gives an image's name in a store of this machine, which has it; else the name itself.
func localImage(ref string) string {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for _, transport := range file.ImageTransports {
		if _, err := imageStores[transport].id(ctx, ref); err == nil {
			return transport + ref
		}
	}
	return ref
}

// inStore splits a name that localImage gave.
func inStore(image string) (store imageStore, ref string, ok bool) {
	for transport, s := range imageStores {
		if ref, ok := strings.CutPrefix(image, transport); ok {
			return s, ref, true
		}
	}
	return nil, "", false
}

// saveImages puts archives in the place of images that stores of this machine have: the server cannot ask them with the
// caller's rights.
func (s *Source) saveImages(ctx context.Context) (found topology.Diagnostics) {
	saved := map[string]string{} // archives, by image
	eachAttributes(s.Topology, func(where string, a *topology.Attributes) {
		store, ref, ok := inStore(a.Image)
		if !ok {
			return
		}
		if saved[a.Image] == "" {
			path, err := saveImage(ctx, store, ref)
			if err != nil {
				found = append(found, topology.Diagnostic{Path: where + ".image", Message: err.Error()})
				return
			}
			saved[a.Image] = path
		}
		a.Rootfs, a.Image = &topology.Source{Path: saved[a.Image]}, ""
	})
	return found
}

const newImage = ".new-" // begins the name of an archive that is being written

var imageID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// saveImage gives the archive of an image, which stays in the user's cache: saving it takes long.
func saveImage(ctx context.Context, store imageStore, ref string) (string, error) {
	asking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	id, err := store.id(asking, ref)
	if err != nil {
		return "", fmt.Errorf("look for image %s: %w", ref, err)
	}
	if id = strings.TrimPrefix(id, "sha256:"); !imageID.MatchString(id) {
		return "", fmt.Errorf("look for image %s: %q is not an ID", ref, id)
	}
	dir, err := imagesDir()
	if err != nil {
		return "", fmt.Errorf("save image %s: %w", ref, err)
	}
	path := filepath.Join(dir, id+".tar")
	// Its time is that of its last use, where that can be set.
	now := time.Now()
	if err := os.Chtimes(path, now, now); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("save image %s: %w", ref, err)
	}
	f, err := os.CreateTemp(dir, newImage)
	if err != nil {
		return "", fmt.Errorf("save image %s: %w", ref, err)
	}
	defer os.Remove(f.Name()) // renamed, if all goes well
	err = store.save(ctx, ref, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("save image %s: %w", ref, err)
	}
	return path, os.Rename(f.Name(), path)
}

// dockerStore asks a Docker daemon by its socket (Docker Engine API, v1.24 and newer).
type dockerStore struct{}

const dockerSocket = "/var/run/docker.sock"

// get requests a path of the daemon at the socket of DOCKER_HOST, or the usual one.
func (dockerStore) get(ctx context.Context, path string) (*http.Response, error) {
	socket := dockerSocket
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		var ok bool
		if socket, ok = strings.CutPrefix(host, "unix://"); !ok {
			return nil, fmt.Errorf("DOCKER_HOST=%s is not a socket of this machine", host)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		answer.Body.Close()
		return nil, errNoImage
	case answer.StatusCode != http.StatusOK:
		answer.Body.Close()
		return nil, fmt.Errorf("docker: %s", answer.Status)
	}
	return answer, nil
}

func (d dockerStore) id(ctx context.Context, ref string) (string, error) {
	answer, err := d.get(ctx, "/images/"+url.PathEscape(ref)+"/json")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var image struct {
		ID string `json:"Id"`
	}
	err = json.NewDecoder(io.LimitReader(answer.Body, 16<<20)).Decode(&image)
	return image.ID, err
}

func (d dockerStore) save(ctx context.Context, ref string, to *os.File) error {
	answer, err := d.get(ctx, "/images/get?names="+url.QueryEscape(ref))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(to, answer.Body)
	return err
}

// podmanStore asks podman(1).
type podmanStore struct{}

func (podmanStore) id(ctx context.Context, ref string) (string, error) {
	out, err := podman(ctx, "image", "inspect", "--format", "{{.Id}}", ref)
	return strings.TrimSpace(out), err
}

func (podmanStore) save(ctx context.Context, ref string, to *os.File) error {
	_, err := podman(ctx, "image", "save", "--format", "docker-archive", "--output", to.Name(), ref)
	return err
}

func podman(ctx context.Context, args ...string) (string, error) {
	var out, wrong bytes.Buffer
	cmd := exec.CommandContext(ctx, "podman", args...)
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	var status *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", errNoImage
	case errors.As(err, &status):
		return "", fmt.Errorf("podman: %s", strings.TrimSpace(wrong.String()))
	}
	return out.String(), err
}
