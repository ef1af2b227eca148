package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/topology/importer"
)

const (
	dockersID = "1111111111111111111111111111111111111111111111111111111111111111"
	podmansID = "2222222222222222222222222222222222222222222222222222222222222222"
)

// docker answers as a daemon does that has the image ceos:4.32.0F; it counts what it sent.
func docker(t *testing.T) map[string]int {
	t.Helper()
	asked := map[string]int{}
	serveDocker(t, func(w http.ResponseWriter, r *http.Request) {
		asked["get "+r.URL.Query().Get("names")]++
		fmt.Fprint(w, "an archive of Docker")
	})
	return asked
}

// serveDocker answers as such a daemon; save answers the request for an image.
func serveDocker(t *testing.T, save http.HandlerFunc) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /images/{name}/json", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "ceos:4.32.0F" {
			http.Error(w, "no such image", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"Id": "sha256:%s"}`, dockersID)
	})
	mux.HandleFunc("GET /images/get", save)
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "unix://"+socket)
}

// podmanHere puts a podman into the PATH that has the image quay.io/lab/srl.
func podmanHere(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const script = `#!/bin/sh
case "$*" in
"image inspect --format {{.Id}} quay.io/lab/srl") echo %s ;;
"image save --format docker-archive --output "*" quay.io/lab/srl") printf 'an archive of Podman' >"$6" ;;
*) echo "no such image: $*" >&2; exit 125 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "podman"), fmt.Appendf(nil, script, podmansID), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const stored = `
topology:
  nodes:
    a: {kind: ceos, image: "ceos:4.32.0F"}
    b: {kind: ceos, image: "ceos:4.32.0F"}
    c: {kind: srl, image: quay.io/lab/srl}
    d: {kind: linux, image: quay.io/lab/elsewhere}
`

func TestImagesOfTheMachinesStoresAreSent(t *testing.T) {
	asked := docker(t)
	podmanHere(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	files(t, map[string]string{"lab.clab.yml": stored})
	o := Options{kinds: []string{importer.AllKinds + "=" + importer.AsImage}}
	for range 2 { // what was saved once is not saved again
		src, err := Load(t.Context(), "lab.clab.yml", o)
		if err != nil {
			t.Fatal(err)
		}
		for node, want := range map[string]string{"a": dockersID, "b": dockersID, "c": podmansID} {
			n := src.Topology.Nodes[node]
			path := filepath.Join(cache, "pergola", "images", want+".tar")
			if n.Image != "" || n.Rootfs == nil || n.Rootfs.Path != path || len(n.Rootfs.SHA256) != 64 {
				t.Errorf("%s: image %q, root %+v", node, n.Image, n.Rootfs)
			}
		}
		if n := src.Topology.Nodes["d"]; n.Image != "quay.io/lab/elsewhere" || n.Rootfs != nil {
			t.Errorf("d: %+v", n)
		}
		if len(src.archives) != 2 {
			t.Errorf("%d archives are sent", len(src.archives))
		}
	}
	if asked["get ceos:4.32.0F"] != 1 {
		t.Errorf("asked %v", asked)
	}
	for id, want := range map[string]string{dockersID: "an archive of Docker", podmansID: "an archive of Podman"} {
		got, err := os.ReadFile(filepath.Join(cache, "pergola", "images", id+".tar"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}
}

// Saving an image takes long: Ctrl-C ends it, and nothing of it stays.
func TestSavingAnImageEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serveDocker(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done() // until the client goes
	})
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	files(t, map[string]string{"p.yaml": "nodes: {a: {image: \"docker-daemon:ceos:4.32.0F\"}}\n"})
	if _, err := Load(ctx, "p.yaml", Options{}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("it says %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(cache, "pergola", "images")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A topology file can name the store itself, as `pergola import` writes it.
func TestAnImageThatAStoreDoesNotHaveIsAnError(t *testing.T) {
	docker(t)
	podmanHere(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for image, want := range map[string]string{"docker-daemon:lab/none:1": "there is no such image",
		"containers-storage:lab/none:1": "no such image"} {
		files(t, map[string]string{"p.yaml": "nodes:\n  a:\n    image: " + image + "\n"})
		_, err := Load(t.Context(), "p.yaml", Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "p.yaml:") != 1 ||
			!strings.HasPrefix(err.Error(), "p.yaml:3:") {
			t.Errorf("%s: %v", image, err)
		}
	}
}
