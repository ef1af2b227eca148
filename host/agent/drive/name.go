package drive

import (
	"regexp"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

// namedError is an error about something that is called by another name than its devices.
type namedError struct {
	text string
	err  error
}

func (e *namedError) Error() string { return e.text }

func (e *namedError) Unwrap() error { return e.err }

// deviceNames matches names of devices in errors: s7p12, s7b0123abcde.
var deviceNames = regexp.MustCompile(`\bs[0-9]+[a-z][0-9a-z]*\b`)

// named gives an error the words of the topology: what the action is about before it, and in it, interfaces and
// switches in the place of the devices that they have on this host.
func (d *Pass) named(k reconcile.Key, err error) error {
	if err == nil {
		return nil
	}
	text := deviceNames.ReplaceAllStringFunc(err.Error(), func(device string) string {
		if owner := d.owner(k.Slice, device); owner != "" {
			return owner
		}
		return device
	})
	if subject := d.subject(k); subject != "" {
		text = subject + ": " + text
	}
	return &namedError{text, err}
}

// subject names what a resource is part of: "link r1:eth1 - r2:eth1", "interface r1:eth1", "switch sw". It is empty for
// those whose errors name their node.
func (d *Pass) subject(k reconcile.Key) string {
	switch k.Kind {
	case plan.KindPort:
		if _, far := d.Want.Detail(k).(plan.Tunnel); far {
			return "tunnel to " + d.owner(k.Slice, k.Name)
		}
		return strings.TrimSpace("interface " + d.owner(k.Slice, k.Name))
	case plan.KindSwitch:
		return strings.TrimSpace("switch " + d.owner(k.Slice, k.Name))
	case plan.KindWire, plan.KindQueue:
		if l := d.Want.LinkOf(k); l != nil {
			return linkName(l)
		}
		var ends []string
		for _, device := range deviceNames.FindAllString(k.Name, -1) {
			if owner := d.owner(k.Slice, device); owner != "" && !slices.Contains(ends, owner) {
				ends = append(ends, owner)
			}
		}
		return strings.TrimSpace("link " + strings.Join(ends, " - "))
	}
	return ""
}

// linkName is a link by its ends, and by the name that its user gave it.
func linkName(l *slice.Link) string {
	if l.LAN || len(l.Ends) != 2 {
		return "link " + l.Name
	}
	a, b := l.Ends[0].String(), l.Ends[1].String()
	ends := a + " - " + b
	if l.Name == a+"--"+b || l.Name == b+"--"+a {
		return "link " + ends
	}
	return "link " + l.Name + " (" + ends + ")"
}

// owner is what a device of a slice is: an interface, a switch, a LAN; empty where that is not known.
func (d *Pass) owner(id uint16, device string) string {
	if name := d.Want.InterfaceOf(id, device); name != "" {
		return name
	}
	if t, far := d.Want.Detail(reconcile.Key{Kind: plan.KindPort, Slice: id, Name: device}).(plan.Tunnel); far {
		return t.Owner // a switch's part on another host
	}
	owner := d.Seen.Owners[device]
	bridge := reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: device}
	if b, wanted := d.Want.Detail(bridge).(plan.Bridge); wanted {
		owner = b.Owner
	}
	if _, of, found := strings.Cut(owner, "/"); found { // the slice's name is before it
		return of
	}
	return owner
}
