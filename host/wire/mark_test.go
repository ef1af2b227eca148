package wire

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMarkSurvivesTheAlias(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roles := []string{"port", "switch", "cable", "queue", "member", "tunnel", "twin", "uplink", "handover"}
		want := mark{
			role:   role(rapid.SampledFrom(roles).Draw(t, "role")),
			owner:  rapid.String().Draw(t, "owner"),
			digest: rapid.String().Draw(t, "digest"),
		}
		if have, was, ok := parseMark(want.String()); !ok || have != want || was != nil {
			t.Errorf("%q is read as %+v, %+v, %v", want.String(), have, was, ok)
		}
	})
}

// Marks of earlier versions said more, which is noted elsewhere now; the rest of them are the marks of what is there,
// so that an upgrade replaces nothing.
func TestMarkOfAnEarlierVersionIsAdopted(t *testing.T) {
	for alias, want := range map[string]struct {
		mark
		earlier
	}{
		"pergola port lab/a:eth0 digest=d1 ns=4026532511 pid=4711": {
			mark{rolePort, "lab/a:eth0", "d1"}, earlier{pid: 4711},
		},
		"pergola port lab/a:eth0 digest=d1 ns=4026532511 pid=4711 queue=rate=1000000,delay=20000000,queue=9": {
			mark{rolePort, "lab/a:eth0", "d1"}, earlier{pid: 4711},
		},
		"pergola port lab/a:eth0 digest=d1 ns=4026531840": {mark{rolePort, "lab/a:eth0", "d1"}, earlier{}},
		"pergola port lab/a:eth0 digest=d1 queue=unsure":  {mark{rolePort, "lab/a:eth0", "d1"}, earlier{}},
		"pergola queue lab/a:eth0 queue=rate=8 again=yes": {mark{roleQueue, "lab/a:eth0", ""}, earlier{}},
		"pergola tunnel lab/lan digest=d2 isolated=yes":   {mark{roleTunnel, "lab/lan", "d2"}, earlier{}},
		"pergola uplink /run/pergola nics=2,71 raised=yes": {
			mark{roleUplink, "/run/pergola", ""}, earlier{nics: []int{2, 71}, raised: true},
		},
	} {
		have, was, ok := parseMark(alias)
		if !ok || have != want.mark || was == nil || !reflect.DeepEqual(*was, want.earlier) {
			t.Errorf("%q is read as %+v, %+v, %v, want %+v", alias, have, was, ok, want)
		}
	}
}

func TestForeignAliasIsNoMark(t *testing.T) {
	for _, alias := range []string{
		"", "eth0", "pergola", "pergola port", "pergola port a pid=x", "pergola port %zz", "Pergola port a",
		"pergola uplink a nics=1,,2",
	} {
		if m, _, ok := parseMark(alias); ok {
			t.Errorf("%q is read as %+v", alias, m)
		}
	}
}

func TestMarkFits(t *testing.T) {
	longest := strings.Repeat("s", 63) + "/" + strings.Repeat("\u00fc", 255) + ":" + strings.Repeat("i", 15)
	m, err := newMark(rolePort, longest, strings.Repeat("d", 16))
	if err != nil || !strings.HasPrefix(m.owner, "sss") || !strings.HasSuffix(m.owner, "iii") {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := newMark(rolePort, longest, strings.Repeat("d", 200)); err == nil {
		t.Error("a digest of 200 bytes was accepted")
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add("pergola port abilene/denver:eth0 digest=1f6c ns=4026532511 pid=4711 queue=rate=1000000 again=yes")
	f.Fuzz(func(t *testing.T, alias string) {
		m, _, ok := parseMark(alias)
		if !ok {
			return
		}
		if again, was, ok := parseMark(m.String()); !ok || again != m || was != nil {
			t.Errorf("%q is read as %+v, and that as %+v, %+v", alias, m, again, was)
		}
	})
}

func TestParseSysctl(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.ip_forward":            "net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.5/rp_filter": "net/ipv4/conf/eth0.5/rp_filter",
		"net.ipv4.conf.eth0/5.rp_filter": "net/ipv4/conf/eth0.5/rp_filter",
	} {
		if s, err := parseSysctl(name, "1"); err != nil || s.path != want {
			t.Errorf("%s: %q, %v", name, s.path, err)
		}
	}
}
