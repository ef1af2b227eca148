package resolve

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/unit"
)

// defaultClass is the class of frames that no rule matches, where the file names none.
const defaultClass = "default"

// classes makes the classes of a direction. Their rules are tried by priority, and within one by name: so the order of
// the classes in the file, which JSON does not keep, means nothing.
func (r *resolver) classes(in file.Shape, rate unit.Rate, at *diagnostic.Path) (all []slice.Class) {
	rules, def := 0, ""
	var reserved unit.Rate
	for _, name := range slices.Sorted(maps.Keys(in.Classes)) {
		c := in.Classes[name]
		where := at.At(name)
		r.checkName(where, "class", name)
		class := slice.Class{Name: name, Share: 1, Priority: cmp.Or(c.Priority, slice.LastPriority),
			Queue: c.Queue}
		if c.Share != nil {
			class.Share = *c.Share
		}
		class.Reserve = checked(c.Reserve.Bits())
		class.Limit = checked(c.Limit.Bits())
		reserved += class.Reserve
		rules += len(c.Match)
		for i, m := range c.Match {
			class.Match = append(class.Match, r.match(m, where.At("match").Item(i)))
		}
		switch {
		case class.Share < 1 || class.Share > slice.MaxShare:
			r.Add(where.At("share"), "the least weight is 1; to bound a class, give it a limit",
				"share %d is out of range: 1 to %d", class.Share, slice.MaxShare)
		case class.Limit != 0 && class.Reserve > class.Limit:
			r.Add(where.At("reserve"), "", "class %q reserves %s and is limited to %s", name, class.Reserve,
				class.Limit)
		case rate != 0 && class.Limit > rate:
			r.Add(where.At("limit"), "leave it out: no class gets more than the link's rate",
				"the limit of class %q is above the rate, %s", name, rate)
		}
		if len(c.Match) == 0 {
			if def != "" {
				r.Add(where, "give all but one of them a match",
					"classes %q and %q have no match: both would be the default class", def, name)
			}
			def = name
		}
		all = append(all, class)
	}
	switch _, taken := in.Classes[defaultClass]; {
	case len(all) == 0:
		return nil
	case def == "" && taken:
		r.Add(at.At(defaultClass), "give it another name",
			"the class %q is for frames that no rule matches, and this one has a match", defaultClass)
	case def == "":
		all = append(all, slice.Class{Name: defaultClass, Share: 1, Priority: slice.LastPriority})
	}
	switch {
	case rate == 0:
		r.Add(at, "add rate: to the link", "classes divide a rate, and there is none here")
	case in.Queue != 0:
		r.Add(at, "write queue: in the classes", "each class has a queue of its own, so the link has no queue")
	case reserved > rate:
		r.Add(at, "lower a reserve:, or raise the rate", "the classes reserve %s of a rate of %s",
			reserved, rate)
	case len(all) > slice.MaxClasses:
		r.Add(at, "", "%d classes, the default one included: at most %d", len(all), slice.MaxClasses)
	case rules > slice.MaxRules:
		r.Add(at, "", "%d rules in all classes: at most %d", rules, slice.MaxRules)
	}
	slices.SortStableFunc(all, func(a, b slice.Class) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// match reads one rule.
func (r *resolver) match(m file.Match, at *diagnostic.Path) (out slice.Match) {
	out.DSCP = checked(m.DSCP.Value())
	out.Protocol = checked(m.Proto.Value())
	out.Src = checked(m.Src.Value())
	out.Dst = checked(m.Dst.Value())
	out.SrcPort = checked(m.SPort.Value())
	out.DstPort = checked(m.DPort.Value())
	out.Port = checked(m.Port.Value())
	switch {
	case m == file.Match{}:
		r.Add(at, "name something in it, or leave match out", "the rule names nothing")
	case m.Port != "" && (m.SPort != "" || m.DPort != ""):
		r.Add(at.At("port"), "write sport and dport",
			"port means either port: it does not go with sport or dport")
	case (m.Port != "" || m.SPort != "" || m.DPort != "") && !m.Proto.HasPorts():
		r.Add(at.At("proto"), "", "%s has no ports", m.Proto)
	case m.Src != "" && m.Dst != "" && out.Src.IsValid() && out.Dst.IsValid() &&
		out.Src.Addr().Is4() != out.Dst.Addr().Is4():
		r.Add(at.At("dst"), "", "src and dst are of two address families: no packet has both")
	}
	return out
}
