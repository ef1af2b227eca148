package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestPlacesOfAUser(t *testing.T) {
	home, session := t.TempDir(), t.TempDir()
	temporary := filepath.Join("/tmp", fmt.Sprintf("pergola-%d", os.Getuid()))
	if run := fmt.Sprintf("/run/user/%d", os.Getuid()); mayWrite(run) {
		temporary = filepath.Join(run, "pergola") // this machine has sessions
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env              map[string]string
		state, data, log string
	}{
		"a session": {
			map[string]string{"HOME": home, "XDG_RUNTIME_DIR": session},
			session + "/pergola", home + "/.local/share/pergola", home + "/.local/state/pergola/log",
		},
		"directories of the user's choice": {
			map[string]string{"HOME": home, "XDG_RUNTIME_DIR": session, "XDG_DATA_HOME": "/d",
				"XDG_STATE_HOME": "/s"},
			session + "/pergola", "/d/pergola", "/s/pergola/log",
		},
		"no session": {
			map[string]string{"HOME": home},
			temporary, home + "/.local/share/pergola", home + "/.local/state/pergola/log",
		},
		"a session's directory where others write": {
			map[string]string{"HOME": home, "XDG_RUNTIME_DIR": open},
			temporary, home + "/.local/share/pergola", home + "/.local/state/pergola/log",
		},
		"no home": {
			map[string]string{"HOME": "/nonexistent", "XDG_RUNTIME_DIR": session},
			session + "/pergola", session + "/pergola/data", session + "/pergola/log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
				t.Setenv(name, tt.env[name])
			}
			want := places{
				state: tt.state, data: tt.data, log: tt.log, own: true,
				socket: tt.state + "/pergola.sock",
			}
			if diff := cmp.Diff(want, usersPlaces(), cmp.AllowUnexported(places{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestRootHasTheMachinesServer also where the environment is that of a user's server, as with sudo -E.
func TestRootHasTheMachinesServer(t *testing.T) {
	testkit.Root(t)
	t.Setenv("PERGOLA_NAMESPACES", "5,6,7,8")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if have := usualPlaces(); have != machinesPlaces {
		t.Errorf("root has %+v", have)
	}
}
