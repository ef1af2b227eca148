package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMarkSurvivesTheAlias(t *testing.T) {
	roles := []role{rolePort, roleSwitch, roleCable, roleQueue, roleMember, roleTunnel, roleTwin, roleUplink}
	rapid.Check(t, func(t *rapid.T) {
		want := mark{
			role:   rapid.SampledFrom(roles).Draw(t, "role"),
			owner:  rapid.String().Draw(t, "owner"),
			digest: rapid.String().Draw(t, "digest"),
			ns:     rapid.Uint64().Draw(t, "ns"),
			pid:    rapid.Int().Draw(t, "pid"),
		}
		want.isolated = rapid.Bool().Draw(t, "isolated")
		want.raised = rapid.Bool().Draw(t, "raised")
		if have, ok := parseMark(want.String()); !ok || have != want {
			t.Errorf("%q is read as %+v, %v", want, have, ok)
		}
	})
}

// Marks of earlier versions held shapes, too. They are the marks of what is there, so that an upgrade replaces nothing.
func TestMarkOfAnEarlierVersionIsAdopted(t *testing.T) {
	for alias, want := range map[string]mark{
		"pergola port lab/a:eth0 digest=d1 ns=4026532511 pid=4711 " +
			"queue=rate=1000000,delay=20000000,loss=0.5,queue=9": {
			role: rolePort, owner: "lab/a:eth0", digest: "d1", ns: 4026532511, pid: 4711,
		},
		"pergola port lab/a:eth0 digest=d1 queue=unsure":  {role: rolePort, owner: "lab/a:eth0", digest: "d1"},
		"pergola queue lab/a:eth0 queue=rate=8 again=yes": {role: roleQueue, owner: "lab/a:eth0"},
	} {
		if have, ok := parseMark(alias); !ok || have != want {
			t.Errorf("%q is read as %+v, %v, want %+v", alias, have, ok, want)
		}
	}
}

func TestForeignAliasIsNoMark(t *testing.T) {
	for _, alias := range []string{
		"", "eth0", "pergola", "pergola port", "pergola  ", "pergola port a ns=x", "pergola port %zz",
		"Pergola port a",
	} {
		if m, ok := parseMark(alias); ok && alias != "pergola  " {
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

// What the uplink's mark says is written in two steps, and the second must not find it full.
func TestMarkOfAsManyInterfacesAsFitTakesAllElse(t *testing.T) {
	m, err := newMark(roleUplink, strings.Repeat("s", 90), "")
	if err != nil {
		t.Fatal(err)
	}
	var indexes []int
	for err == nil {
		indexes = append(indexes, 100+len(indexes))
		var with mark
		if with, err = m.withNICs(indexes); err != nil {
			break
		}
		with.raised = true
		if n := len(with.String()); n > maxAlias {
			t.Fatalf("with %d interfaces, the alias becomes %d bytes long", len(indexes), n)
		}
	}
	if len(indexes) < 30 || !strings.Contains(err.Error(), "interfaces are too many") {
		t.Errorf("%d interfaces: %v", len(indexes), err)
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add("pergola port abilene/denver:eth0 digest=1f6c ns=4026532511 queue=rate=1000000,delay=20000000 again=yes")
	f.Fuzz(func(t *testing.T, alias string) {
		m, ok := parseMark(alias)
		if !ok {
			return
		}
		if again, ok := parseMark(m.String()); !ok || again != m {
			t.Errorf("%q is read as %+v, and that as %+v", alias, m, again)
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
