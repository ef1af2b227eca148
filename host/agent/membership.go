package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
)

// joinCluster prepares what the agent does as a member of a cluster.
func (a *Agent) joinCluster() {
	cfg := a.cfg
	a.watchdog = &member.Watchdog{StateDir: cfg.StateDir, LogDir: cfg.LogDir, Command: cfg.Watchdog, Log: cfg.Log}
	a.fence = member.NewFence(cfg.Log, cfg.Cluster != nil, a.watchdog.Post, member.FenceActions{
		End: a.endFenced, Reload: a.reload, Changed: func() { a.interrupt(); a.Nudge() },
	})
	a.survey = member.NewSurvey(a.platform.PathMTU)
	a.underlay = member.NewUnderlay(cfg.Cluster, a.platform.Interfaces, cfg.Log)
	a.host = member.NewHost(member.Config{
		Name: cfg.Host, Cluster: cfg.Cluster, Log: cfg.Log, Events: cfg.Events, Terms: a.terms, Features: a.features,
		Interfaces: a.platform.Interfaces, Watch: a.platform.WatchInterfaces, Tunnels: a.tunnels, Changed: a.Nudge,
	}, a.survey, a.underlay)
}

func (a *Agent) features() (all []string) {
	if a.platform.HaveNetem() == nil {
		all = append(all, hosts.FeatureNetem)
	}
	if a.platform.HaveHTB() == nil {
		all = append(all, hosts.FeatureHTB)
	}
	return all
}

// terms are what the machine's root grants to slices; nil: whatever they ask for.
func (a *Agent) terms() *hosts.Terms {
	if a.cfg.Consents == nil {
		return nil
	}
	return a.cfg.Consents.Terms()
}

// peerAddresses gives this host's end of tunnels, and those of the other hosts.
func (a *Agent) peerAddresses() (local netip.Addr, others map[string]netip.Addr) {
	at := a.place()
	return at.Address, at.Peers
}

// noteFences keeps the marks of the fence as the slices want them; a new sliver has its mark from the start. There is a
// watchdog before there is a mark.
func (a *Agent) noteFences(at plan.Place, inputs []plan.Input, seen *sight) {
	if a.cfg.Cluster == nil {
		return
	}
	if marks(at, inputs) {
		a.needWatchdog()
	}
	for _, w := range inputs {
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
			s, there := seen.slivers[id]
			want := plan.FenceMark(n)
			if !there || !at.Owns(n) || s.State == sliver.Broken || s.Notes[plan.FenceNote] == want {
				continue
			}
			if err := a.runtime.Note(id, plan.FenceNote, want); err != nil {
				a.cfg.Log.Warn("note that a node may start elsewhere", "node", id.String(), "error", err)
			}
		}
	}
}

// needWatchdog sees to it that there is a watchdog, or logs that there is none.
func (a *Agent) needWatchdog() {
	if err := a.watchdog.Call(); err != nil {
		a.cfg.Log.Error("nodes that start elsewhere are not ended here should this process be killed", "error", err)
	}
}

// marks reports whether a host may have nodes now that the fence ends.
func marks(at plan.Place, inputs []plan.Input) bool {
	return !at.Fenced && slices.ContainsFunc(inputs, func(w plan.Input) bool {
		for i := range w.Spec.Nodes {
			if n := &w.Spec.Nodes[i]; at.Owns(n) && plan.FenceMark(n) != "" {
				return true
			}
		}
		return false
	})
}

// endFenced ends what the fence ends, at once: it waits for no plan. Passes keep it so.
func (a *Agent) endFenced(ctx context.Context) {
	all, err := a.runtime.List()
	if err != nil {
		a.cfg.Log.Error("end nodes that may start elsewhere", "error", err)
		return
	}
	var group sync.WaitGroup
	for _, s := range all {
		if s.Notes[plan.FenceNote] == "" {
			continue
		}
		group.Go(func() {
			a.fast.remove(s.ID)
			if err := a.runtime.Delete(context.WithoutCancel(ctx), s.ID); err != nil {
				a.cfg.Log.Error("end a node that may start elsewhere", "node", s.ID.String(), "error", err)
				return
			}
			a.pids.Delete(s.ID)
			a.Nudge()
		})
	}
	group.Wait()
}
