package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/lab/testkit"
)

var wanted = regexp.MustCompile(`^/\* want: (.*) \*/`)

// sources calls f with each C file of a folder of testdata, and with what its first line wants.
func sources(t *testing.T, folder string, f func(t *testing.T, source, text, want string)) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join("testdata", folder, "*.c"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	for _, source := range all {
		t.Run(strings.TrimSuffix(filepath.Base(source), ".c"), func(t *testing.T) {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			want := wanted.FindStringSubmatch(string(text))
			if want == nil {
				t.Fatal("the first line does not say what is wanted")
			}
			f(t, source, string(text), want[1])
		})
	}
}

// Each of these tries one way out. The error gives the reason, and the line where one is to blame.
func TestHostileProgramsAreRefused(t *testing.T) {
	testkit.Root(t)
	sources(t, "hostile", func(t *testing.T, source, text, want string) {
		t.Helper()
		file, err := Build(t.Context(), source, "-w")
		if err != nil {
			var c *CompileError
			if errors.As(err, &c) && regexp.MustCompile(want).MatchString(c.Output) {
				return
			}
			t.Fatalf("%v: %+v", err, c)
		}
		o, err := Read(source, file)
		if err == nil {
			var p *Program
			if p, err = Load(o, nil); err == nil {
				t.Errorf("it was loaded: %+v", p.Costs)
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				return
			}
		}
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("error is of another kind: %v", err)
		}
		t.Logf("%v (%s)", refused, refused.Advice)
		if !regexp.MustCompile(want).MatchString(refused.Error()) {
			t.Errorf("error is %q, and should match %q\n%s", refused, want, strings.Join(refused.Log, "\n"))
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "/* here */") && (refused.Line != i+1 ||
				refused.File != filepath.Base(source)) {
				t.Errorf("error names %s:%d, and not line %d\n%s", refused.File, refused.Line, i+1,
					strings.Join(refused.Log, "\n"))
			}
		}
	})
}

// What these do, the platform notices, or it does not matter.
func TestWhatProgramsLeaveBehindIsChecked(t *testing.T) {
	sources(t, "harmless", func(t *testing.T, source, _, want string) {
		t.Helper()
		p := load(t, build(t, source))
		frame := udp4(t, "198.51.100.7", 9, 100)
		for _, hook := range Hooks {
			o := run(t, p, hook, Frame{Data: frame, Interface: 1})
			if o.Fault != want {
				t.Errorf("%s: fault is %q, want %q", hook, o.Fault, want)
			}
			if want == "" {
				if diff := cmp.Diff(frame, o.Data); diff != "" {
					t.Errorf("%s: %s", hook, diff)
				}
			} else if o.Leaves() {
				t.Errorf("%s: it leaves: %+v", hook, o)
			}
		}
	})
}

func TestObjectsThatAreNoneAreRefused(t *testing.T) {
	good, err := Build(t.Context(), filepath.Join(testkit.ModuleRoot(t), "examples", "programs", "ipv4.c"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":        {nil, "is no object file"},
		"text":         {[]byte("int main(void) { return 0; }"), "is no object file"},
		"too large":    {append(bytes.Clone(good), make([]byte, MaxObject)...), "and may have"},
		"a program":    {self[:min(len(self), MaxObject)], "is no BPF object|is no object file"},
		"cut":          {good[:len(good)/2], "is no object file|cut off|cannot be read"},
		"other header": {withVersion(t, good, Version+1), "was compiled against version 2"},
	} {
		_, err := Read("x.o", c.file)
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s: error is %v, and should match %q", name, err, c.want)
		}
	}
	if _, err := Read("x.o", good); err != nil {
		t.Error(err)
	}
	source := filepath.Join(t.TempDir(), "x.c")
	if err := os.WriteFile(source,
		[]byte("#include <pergola/program.h>\nPERGOLA_PARSE(packet) { return packet->start; }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	file, err := Build(t.Context(), source, "-g0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Read("x.o", file)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Advice, "-g") {
		t.Errorf("without line information: %v", err)
	}
}

// withVersion is an object that says it was compiled against another version of the header.
func withVersion(t *testing.T, file []byte, version uint32) []byte {
	t.Helper()
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(file)
	nativeOrder.PutUint32(changed[e.Section(versionSection).Offset:], version)
	return changed
}
