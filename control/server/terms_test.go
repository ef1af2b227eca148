package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

func TestTermsAreStored(t *testing.T) {
	dir := t.TempDir()
	c, err := openTerms(dir)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	if err := c.allow([]string{"/srv/labs/", "/opt/data"}, &yes, nil, nil); err != nil {
		t.Fatal(err)
	}
	err = c.allow([]string{"labs"}, nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), `--host-paths "labs"`) {
		t.Errorf("a path from anywhere: %v", err)
	}
	stored := false
	read, write := slice.Hold{Path: "/etc/frr"}, slice.Hold{Path: "/var/lab", Write: true}
	if err := c.Give("lab", []slice.Hold{read, write}, func() error {
		stored = true
		return nil
	}); err != nil || !stored {
		t.Fatalf("stored %v: %v", stored, err)
	}
	for _, why := range []error{store.ErrConflict, store.ErrDeleting} {
		err := c.Give("lab", []slice.Hold{{Path: "/var/new"}}, func() error { return why })
		if !errors.Is(err, why) {
			t.Error(err)
		}
		if _, ok := c.Terms().Covers("lab", slice.Hold{Path: "/var/new"}); ok {
			t.Errorf("a version that was not stored (%v) has what it holds", why)
		}
		if _, ok := c.Terms().Covers("lab", write); !ok {
			t.Errorf("a version that was not stored (%v) takes something away", why)
		}
	}
	silence := errors.New("no answer")
	if err := c.Give("lab", []slice.Hold{{Path: "/var/new"}}, func() error {
		return silence
	}); !errors.Is(err, silence) {
		t.Error(err)
	}
	for _, h := range []slice.Hold{read, write, {Path: "/var/new"}} { // it is not known which of both versions runs
		if _, ok := c.Terms().Covers("lab", h); !ok {
			t.Errorf("a version that may not have been stored takes %s away", h)
		}
	}
	if err := c.Give("lab", []slice.Hold{read, write}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if c, err = openTerms(dir); err != nil {
		t.Fatal(err)
	}
	if err := c.allow(nil, nil, nil, nil); err != nil { // the next start says nothing
		t.Fatal(err)
	}
	for _, tt := range []struct {
		slice string
		hold  slice.Hold
		dir   string
		ok    bool
	}{
		{"lab", read, "", true},
		{"lab", write, "", true},
		{"lab", slice.Hold{Path: "/var/lab"}, "", true},
		{"lab", slice.Hold{Path: "/etc/frr", Write: true}, "", false},
		{"lab", slice.Hold{Path: "/etc"}, "", false},
		{"lab", slice.Hold{Path: "/var/new"}, "", false},
		{"other", read, "", false},
		{"other", slice.Hold{}, "", true},
		{"other", slice.Hold{Path: "/srv/labs", Write: true}, "/srv/labs", true},
		{"other", slice.Hold{Path: "/srv/labs/a/b", Write: true}, "/srv/labs", true},
		{"other", slice.Hold{Path: "/srv/labs/../x"}, "", false},
		{"other", slice.Hold{Path: "/srv/labsx"}, "", false},
		{"other", slice.Hold{Path: "srv/labs"}, "", false},
	} {
		if dir, ok := c.Terms().Covers(tt.slice, tt.hold); ok != tt.ok || dir != tt.dir {
			t.Errorf("%s may have %+v: %q %v", tt.slice, tt.hold, dir, ok)
		}
	}
	if err := c.allow([]string{}, nil, nil, nil); err != nil || len(c.Terms().Paths) != 0 || !c.Terms().Network {
		t.Errorf("taken back: %+v, %v", c.Terms(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, termsName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

func TestConsentEndsWithTheSlice(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := openTerms(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.records = s
	give := func() error {
		return c.Give("lab", []slice.Hold{{Path: "/srv"}}, func() error {
			return s.PutSlice(t.Context(),
				&slice.Slice{Name: "lab", Nodes: []slice.Node{{Name: "a", Kind: slice.Router}}}, 0)
		})
	}
	if err := give(); err != nil {
		t.Fatal(err)
	}
	if err := c.prune(t.Context()); err != nil || len(c.Terms().Given) != 1 {
		t.Errorf("while it is there: %v %v", c.Terms().Given, err)
	}
	if err := s.DeleteSlice(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if err := c.Forget(t.Context(), "lab"); err != nil || len(c.Terms().Given) != 0 {
		t.Errorf("when it goes: %v %v", c.Terms().Given, err)
	}
	if err := give(); !errors.Is(err, store.ErrDeleting) {
		t.Errorf("while it goes: %v", err)
	}
	if err := c.prune(t.Context()); err != nil || len(c.Terms().Given) != 0 {
		t.Errorf("what was not stored: %v %v", c.Terms().Given, err)
	}
}

// bound is pinned, with a path of the machine in b.
func bound(name, a, b, bind string) *topology.Topology {
	top := pinned(name, a, b)
	n := top.Nodes["b"]
	n.Binds = topology.Strings{bind}
	top.Nodes["b"] = n
	return top
}

func TestAHostDecidesWhatSlicesHaveOfIt(t *testing.T) {
	testkit.Root(t) // grants are for root
	h1 := run(t, machineConfig(t, "h1"))
	cfg := machineConfig(t, "h2")
	cfg.HostPaths = []string{"/srv/labs"}
	invite(t, h1, &cfg, pki.Agent)
	h2 := run(t, cfg)
	_, err := h1.Apply(t.Context(), "net", bound("net", "h1", "h2", "/etc:/e"), false)
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != 403 || len(p.Errors) != 1 || p.Errors[0].Location != "nodes.b.binds" ||
		!strings.Contains(p.Detail,
			"host h2 does not allow node b to use /etc: apply the network on h2 itself, as root, "+
				"or start Pergola there with --host-paths /srv/labs,/etc") {
		t.Errorf("root of another machine: %v", err)
	}
	up(t, h1.Client, bound("allowed", "h1", "h2", "/srv/labs/x:/x"))
	up(t, h2.Client, bound("net", "h1", "h2", "/etc:/e"))
	given := func() []string {
		terms, err := openTerms(h2.cfg.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for name, holds := range terms.Terms().Given {
			names = append(names, name+" "+holds[0].Path)
		}
		return names
	}
	if got := given(); !slices.Equal(got, []string{"net /etc"}) {
		t.Errorf("h2 grants %v", got)
	}
	up(t, h1.Client, bound("net", "h1", "h2", "/etc:/other")) // no more than it has
	if err := h2.Delete(t.Context(), "net"); err != nil {
		t.Fatal(err)
	}
	_, err = h1.Apply(t.Context(), "again", bound("again", "h1", "h2", "/etc:/e"), true)
	refused(t, err, 403, "host h2 does not allow node b to use /etc")
}

func TestAnAgentThatWasOffForTooLong(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	if err := h1.stop(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{h1, h2} {
		expire(t, h1, m)
	}
	h1 = run(t, h1.cfg) // it signs its own
	showsValidCertificate(t, h1)
	expired, cfg := h2.cfg, h2.cfg
	expired.Join, expired.Token, expired.Host = "", "", ""
	startFails(t, expired, "this machine's certificate", "expired at ",
		"if that is right, the machine was off for too long", "`pergola token create`", "its name stays h2")
	invite(t, h1, &cfg, pki.Agent)
	cfg.Host = ""
	run(t, cfg)
}

// showsValidCertificate waits until a server that was started shows others a certificate that holds.
func showsValidCertificate(t *testing.T, m *member) {
	t.Helper()
	//nolint:gosec // the certificate is what is looked at
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	testkit.Eventually(t, func() error {
		c, err := dialer.DialContext(t.Context(), "tcp", m.cfg.Listen+":7470")
		if err != nil {
			return err
		}
		defer c.Close()
		shown := c.(*tls.Conn).ConnectionState().PeerCertificates[0] //nolint:forcetypeassert // Dialer promises
		if time.Now().After(shown.NotAfter) {
			return fmt.Errorf("its certificate was valid until %v", shown.NotAfter)
		}
		return nil
	}, 20*time.Second, m.cfg.Host+" to renew its certificate")
}

// expire gives a member that does not run a certificate that does not hold any more.
func expire(t *testing.T, first, m *member) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(first.cfg.DataDir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cert, key, err := s.Trust().Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.LoadAuthority(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openIdentity(filepath.Join(m.cfg.DataDir, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	was := d.identity.Load()
	member := pki.Member{Name: d.member.Name, Role: d.member.Role}
	for _, ip := range was.Certificate.IPAddresses {
		member.Hosts = append(member.Hosts, ip.String())
	}
	old, err := a.Issue(member, was.Key.Public(), time.Now().AddDate(0, -4, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.renew(pki.EncodeCertificate(old)); err != nil {
		t.Fatal(err)
	}
}
