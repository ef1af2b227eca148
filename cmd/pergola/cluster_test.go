package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/server"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// paper is a cluster whose other machines answer nothing.
type paper struct{ authority *pki.Authority }

func (paper) Self() string                           { return "h1" }
func (paper) KeepsStore() bool                       { return true }
func (paper) IsServer() bool                         { return true }
func (p paper) Authority() *pki.Authority            { return p.authority }
func (paper) Peer(store.HostState) http.RoundTripper { return nowhere{} }
func (paper) Connected(context.Context) bool         { return true }
func (paper) AnyServer() http.RoundTripper           { return nowhere{} }
func (paper) Servers() []string                      { return []string{"192.0.2.1:7470"} }

func (paper) Join(context.Context, api.JoinRequest) (api.JoinAnswer, error) {
	return api.JoinAnswer{}, errors.New("nobody joins")
}

func (paper) Renew(context.Context, pki.Member, api.RenewRequest) (api.RenewAnswer, error) {
	return api.RenewAnswer{}, errors.New("nothing is renewed")
}

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

// inCluster is inLab with three hosts, where root asks.
func inCluster(t *testing.T) (w *world, lose func(host string)) {
	t.Helper()
	authority, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leases := map[string]*store.Lease{}
	lose = func(host string) {
		if err := leases[host].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(leases, host)
	}
	w = newWorld(t, func(cfg *rest.Config, s *store.Store) {
		for i := range 3 {
			address := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
			h := hosts.Host{
				Name: fmt.Sprintf("h%d", i+1), Machine: fmt.Sprint(i), Address: address,
				API: address.String() + ":7470", Cores: 4, Memory: 8 << 30, Load: 0.5,
				Kernel: "6.12.1", Version: "v-test", Features: []string{hosts.FeatureHTB},
				Labels: map[string]string{"rack": string(rune('a' + i))},
				Underlays: []hosts.Underlay{
					{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(address, 24)},
						MTU: 1500, Rate: 1e10, XDP: "native"}},
			}
			if leases[h.Name], err = s.Register(t.Context(), h, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Cluster = paper{authority}
		cfg.Controller = controller.New(s, cfg.Agent.(controller.Host), cfg.Blobs, cfg.Events,
			controller.InCluster(s, "h1"))
	})
	t.Cleanup(func() {
		for _, l := range leases {
			_ = l.Close(context.Background())
		}
	})
	w.be(controller.Caller{Root: true})
	t.Chdir(t.TempDir())
	edit(t, strings.NewReplacer("a: {kind: router}", "a: {kind: router, host: h1}", "b: {kind: router}",
		"b: {kind: router, host: h2}").Replace(labFile))
	return w, lose
}

func TestStoryOfHosts(t *testing.T) {
	_, lose := inCluster(t)
	pergola(t, "host", "ls").want(t, 0, `(?m)^HOST +ADDRESS +STATE +NODES +CORES +MEMORY +LOAD +LABELS$
^h1 +192\.0\.2\.1 +alive +0 +0/4 +0 B/8 GiB +0\.50 +rack=a$`, "")
	pergola(t, "up", "--dry-run").want(t, 0, `(?m)^on h1: a.*\n^on h2: b`, "")
	pergola(t, "up").want(t, 0, "", `(?m)^on h1: a.*\n^on h2: b.*\nlab is up`)
	pergola(t, "inspect").want(t, 0, `(?m)^NODE +KIND +STATE +HOST .*\n^a +frr +running +h1 `, "")
	pergola(t, "ls").want(t, 0, `(?m)HOSTS$\n^lab +up .* h1,h2`, "")
	pergola(t, "host", "inspect", "h2").want(t, 0,
		`(?s)^h2: alive for .*, 1 node placed on it\n.*features +htb\n.*eth0 +192\.0\.2\.2/24 +1500 +10 `+
			`Gbit/s +native.*lab +1`,
		"what went through the tunnels is not known: host h2 at .* does not answer")
	pergola(t, "host", "inspect", "hh2").want(t, 1, "",
		"no host \"hh2\": the cluster has h1, h2, h3\n +did you mean h2\\?")
	pergola(t, "host", "cordon", "h2", "h3").want(t, 0, "", "h2 takes no new nodes\nh3 takes no new nodes")
	pergola(t, "host", "ls").want(t, 0, `(?m)^h2 .* alive, cordoned `, "")
	pergola(t, "host", "uncordon", "h2").want(t, 0, "", "h2 takes nodes")
	pergola(t, "host", "drain", "h3", "--wait").want(t, 0, "", "h3 has no nodes")
	pergola(t, "host", "ls").want(t, 0, `(?m)^h3 .* alive, draining `, "")
	pergola(t, "host", "drain", "h2", "--wait", "--timeout", "1ms").want(t, 1, "", "h2 has 1 node still|deadline")
	pergola(t, "host", "label", "h3", "rack-", "ssd=yes").want(t, 0, "", "h3 has the labels ssd=yes")
	pergola(t, "host", "label", "h3", "rack").want(t, 2, "", `label "rack"\n +write such as rack=a`)
	pergola(t, "host", "rm", "h3").want(t, 1, "", "host h3 is alive, and would come back: stop its server first")
	lose("h3")
	pergola(t, "host", "ls").want(t, 0, `(?m)^h3 .* lost .*draining`, "")
	pergola(t, "host", "rm", "h3").want(t, 0, "", "h3 removed")
	pergola(t, "host", "rm", "h3").want(t, 1, "", `no host "h3"`)
	pergola(t, "status").want(t, 0,
		`(?s)^this is h1, a server of a cluster of 2 hosts, 2 alive\nits certificate authority is valid until `+
			`20\d\d-\d\d-\d\d\n.*lab +up`, "")
	pergola(t, "status", "lab").want(t, 2, "", "`pergola inspect lab` shows it")
	for _, args := range [][]string{{"host", "ls"}, {"host", "inspect", "h1"}, {"status"}, {"token", "ls"},
		{"token", "create"}} {
		if o := pergola(t, append(args, "--json", "-q")...); o.status != 0 || !json.Valid([]byte(o.out)) ||
			o.errs != "" {
			t.Errorf("%v: %s", args, o)
		}
	}
	if o := pergola(t, "__complete", "host", "drain", ""); !slices.Contains(strings.Split(o.out, "\n"), "h2") {
		t.Errorf("hosts are not completed: %s", o)
	}
}

func TestProblemsOfAHostAreShown(t *testing.T) {
	w, _ := inCluster(t)
	if err := w.store.PutHost(t.Context(), hosts.Host{Name: "h2", Bound: true,
		Trouble: "packets are kept back"}); err != nil {
		t.Fatal(err)
	}
	pergola(t, "host", "ls").want(t, 0, "h2", "(?m)^h2: packets are kept back$")
	pergola(t, "host", "inspect", "h2").want(t, 0, "they leave by +the interfaces below, and no others",
		"(?m)^h2: packets are kept back$")
	pergola(t, "host", "inspect", "h2", "--json").want(t, 0,
		`"bound": true,\n *"trouble": "packets are kept back"`, "")
}

func TestCountersOfTunnelsAreInTheDocument(t *testing.T) {
	inCluster(t)
	pergola(t, "host", "inspect", "h1").want(t, 0, `(?m)^dropped: unknown tunnel +2$`, "")
	pergola(t, "host", "inspect", "h1", "--json").want(t, 0,
		`"name": "h1"(?s:.*)"tunnels": \{\s+"received": 12,\s+"by_line_card": 0,\s+"sent": 3,\s+"dropped": `+
			`\{\s+"unknown tunnel": 2\s`, "")
	o := pergola(t, "host", "inspect", "h2", "--json") // which does not answer
	o.want(t, 0, `"name": "h2"`, "what went through the tunnels is not known")
	if strings.Contains(o.out, `"tunnels"`) {
		t.Errorf("counters that nobody knows: %s", o)
	}
}

func TestHostsThatDoNotAnswerAreNamed(t *testing.T) {
	_, lose := inCluster(t)
	pergola(t, "up").want(t, 0, "", "lab is up")
	pergola(t, "verify").want(t, 2, "no difference",
		"warning: nothing is known of the nodes on h2: host h2 at 192.0.2.2:7470 does not "+
			"answer: no route to host")
	pergola(t, "exec", "a", "ls").want(t, 0, "^ls\n$", "")
	pergola(t, "exec", "b", "ls").want(t, 125, "", "host h2 at 192.0.2.2:7470 does not answer")
	pergola(t, "inspect", "--fastpath").want(t, 0, "a +on", "warning: nothing is known of the nodes on h2")
	pergola(t, "check", "--all-pairs").want(t, 1, "host h2 .*does not answer", "")
	pergola(t, "wait", "--timeout", "300ms").want(t, 1, "", "host h2 at 192.0.2.2:7470 does not answer")
	lose("h2")
	pergola(t, "ls").want(t, 0, `(?m)^lab +degraded +\d/3 `, "")
	pergola(t, "inspect").want(t, 0, `(?m)^lab: degraded(.*\n)*^b +frr +lost +h2 `, "b: host h2 does not answer")
	pergola(t, "logs", "b").want(t, 1, "", "node b is on host h2, which does not answer: it is lost since")
	pergola(t, "host", "rm", "h2").want(t, 1, "", "host h2 has 1 nodes of lab: move them away first")
	pergola(t, "host", "rm", "h2", "--force").want(t, 0, "", "h2 removed")
}

func TestTokensAdmitMachines(t *testing.T) {
	inCluster(t)
	pergola(t, "token", "ls").want(t, 0, "", "there is no token: no machine can join")
	o := pergola(t, "token", "create", "--role", "server", "--note", "rack 7", "--life", "1h").want(t, 0,
		`^pergola server --join https://192\.0\.2\.1:7470 --token pergola-\w{8}-\w{26}-\w+\n$`,
		"as root, within 60 min")
	id := strings.Split(o.out, "-")
	pergola(t, "token", "ls").want(t, 0,
		`(?m)^ID +FOR +EXPIRES +MADE +NOTE$\n`+id[len(id)-3]+` +server +in \d+m .* rack 7$`, "")
	pergola(t, "token", "create", "--role", "sever").want(t, 2, "", `no role "sever"\n +did you mean server\?`)
	pergola(t, "token", "create", "--life", "-1h").want(t, 2, "", "--life")
	pergola(t, "token", "revoke", id[len(id)-3]).want(t, 0, "", "revoked")
	pergola(t, "token", "revoke", id[len(id)-3]).want(t, 1, "", "no such token\n +`pergola token ls` lists them")
}

func TestOnlyRootChangesMachines(t *testing.T) {
	w, lose := inCluster(t)
	pergola(t, "up").want(t, 0, "", "lab is up")
	lose("h3")
	w.be(controller.Caller{UID: 1000, GID: 1000})
	for _, args := range []string{"host cordon h1", "host uncordon h1", "host drain h1", "host label h1 a=b",
		"host rm h3", "host rm h3 --force"} {
		pergola(t, strings.Fields(args)...).want(t, 1, "",
			"only root may change the machines of the cluster: use sudo")
	}
	pergola(t, "token", "create").want(t, 1, "", "only root may make one")
	pergola(t, "token", "revoke", "abcd2345").want(t, 1, "", "only root may revoke")
	pergola(t, "host", "ls").want(t, 0, "h3", "")
	pergola(t, "status").want(t, 0, "3 hosts, 2 alive", "")
	pergola(t, "restart", "a").want(t, 0, "", "restarted") // slices are the group's
	w.be(controller.Caller{Root: true})
	pergola(t, "host", "rm", "h3").want(t, 0, "", "h3 removed")
}

func TestWhereTheTokenComesFrom(t *testing.T) {
	const token = "pergola-abcd2345-abcdefghijklmnopqrstuvwxyz-x"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PERGOLA_TOKEN", "of the environment")
	for name, tt := range map[string]struct {
		o    serverOptions
		want string
	}{
		"a flag":          {serverOptions{cfg: joining(token)}, token},
		"a file":          {serverOptions{cfg: joining(""), token: file}, token},
		"standard input":  {serverOptions{cfg: joining(""), token: "-"}, token},
		"the environment": {serverOptions{cfg: joining("")}, "of the environment"},
		"nobody joins":    {serverOptions{}, ""},
	} {
		if got, err := tt.o.readToken(strings.NewReader(token + "\nmore\n")); err != nil || got != tt.want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	pergola(t, "agent", "--join", "192.0.2.1", "--token", "x", "--token-file", file).want(t, 2, "",
		"--token and --token-file both name a token")
	pergola(t, "agent", "--join", "192.0.2.1", "--token-file", file+"x").want(t, 1, "",
		"read the token: open .*no such file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pergola(t, "agent", "--join", "192.0.2.1", "--token-file", file).want(t, 2, "", "--join needs a token")
}

func joining(token string) (cfg server.Config) {
	cfg.Join, cfg.Token = "https://192.0.2.1:7470", token
	return cfg
}

func TestNoEvenNumberOfServers(t *testing.T) {
	pergola(t, "dev", "cluster", "up", "-n", "4", "--servers", "2").want(t, 2, "",
		"--servers 2: 2 of them would have to answer, so only 0 may fail, as of 1\n "+
			"+use --servers 1 or 3")
	pergola(t, "dev", "cluster", "up", "-n", "4", "--servers", "4").want(t, 2, "",
		"--servers 4: 3 of them would have to answer, so only 1 may fail, as of 3\n "+
			"+use --servers 3\n")
	for servers, words := range map[int]string{0: "", 1: "", 2: "both servers must answer", 3: "",
		4: "3 of 4 servers must answer .*, so only 1 may fail, as of 3", 5: ""} {
		if got := rest.EvenServers(servers); (got == "") != (words == "") ||
			!regexp.MustCompile(words).MatchString(got) {
			t.Errorf("%d servers: %q", servers, got)
		}
	}
}

func TestMachineInNoClusterHasNoHosts(t *testing.T) {
	inLab(t)
	pergola(t, "host", "ls").want(t, 0, "", "this machine is in no cluster")
	pergola(t, "host", "inspect", "h1").want(t, 1, "", "this machine is in no cluster")
	pergola(t, "token", "create").want(t, 1, "",
		"this machine is in no cluster: start its server with --listen ADDRESS")
	pergola(t, "status").want(t, 0,
		"^this machine is in no cluster\npergola v-test answers: process [0-9]+, since .*\n$", "")
	pergola(t, "agent", "--join", "192.0.2.1").want(t, 2, "", "--join needs a token")
	pergola(t, "server", "--join", "192.0.2.1", "--token", "x", "--listen", "none").want(t, 2, "",
		"the other machines need an address")
	pergola(t, "server", "--label", "rack").want(t, 2, "", `label "rack"`)
}
