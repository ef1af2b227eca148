package server

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
)

// printedNote marks the token in the command that a server prints when it starts. The next start revokes it.
const printedNote = "printed when the server started"

// announce prints the command by which other machines join. Where some have joined already, it only says how to get
// one.
func (s *server) announce(ctx context.Context) {
	if s.cluster == nil || s.Out == nil || !s.cluster.IsServer() {
		return
	}
	defer s.warnOfEven(ctx)
	if s.supervisor.conn != nil { // a service: its log is no place for a secret
		fmt.Fprintf(s.Out, "%s is a server of a cluster: "+
			"other machines join by the command that `pergola token create` prints.\n", s.Host)
		return
	}
	hosts, err := s.store.Hosts(ctx)
	if err == nil && len(hosts) > 1 {
		fmt.Fprintf(s.Out, "%s is a server of a cluster of %d hosts; "+
			"one more joins by the command that `pergola token create` prints.\n", s.Host, len(hosts))
		return
	}
	line, err := s.joinLine(ctx)
	if err != nil {
		s.Log.Warn("make a token for other machines; no join command is printed", "error", err)
		return
	}
	fmt.Fprintf(s.Out, "Another machine joins by this command, within a day, as root:\n\n  %s\n\n"+
		"`pergola token create` prints another one; with --role server, for a machine that keeps the "+
		"cluster's state, too.\n",
		line)
}

func (s *server) warnOfEven(ctx context.Context) {
	if !s.cluster.KeepsStore() {
		return
	}
	members, err := s.store.Members(ctx)
	if err != nil {
		s.Log.Warn("count the servers of the cluster", "error", err)
		return
	}
	if even := rest.EvenServers(rest.Started(members)); even != "" {
		fmt.Fprintf(s.Out, "Warning: %s.\n", even)
	}
}

func (s *server) joinLine(ctx context.Context) (string, error) {
	grants, err := s.store.Trust().Grants(ctx)
	if err != nil {
		return "", err
	}
	for _, g := range grants {
		if g.Note == printedNote {
			_ = s.store.Trust().DeleteGrant(ctx, g.ID) // it may have expired at this moment
		}
	}
	t, err := rest.NewToken(ctx, s.store.Trust(), s.cluster, api.TokenRequest{Role: pki.Agent, Note: printedNote})
	if err != nil {
		return "", err
	}
	return t.Command(), nil
}
