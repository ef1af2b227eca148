package sessions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// isFull reports whether a state of OSPF is one in which neighbours stay: Full, or 2-Way between routers of a LAN of
// which neither is designated (RFC 2328, 10.4).
func isFull(state string) bool {
	return strings.HasPrefix(strings.ToLower(state), "full") || isTwoWay(state)
}

func isTwoWay(state string) bool {
	state = strings.ToLower(state)
	return strings.HasPrefix(state, "2-way") || strings.HasPrefix(state, "twoway")
}

// elects notes that neighbours of an interface do not stay in 2-Way: the router itself is the designated one there, or
// its backup, or it waits until these are elected (RFC 2328, 9.1). own is the state of the interface; empty where FRR
// did not say.
func (v *View) elects(protocol, iface, own string) {
	if own == "" || own == "DROther" {
		return
	}
	for i := range v.Sessions {
		if s := &v.Sessions[i]; s.Protocol == protocol && s.Interface == iface && isTwoWay(s.State) {
			s.Up = false
		}
	}
}

// decode reads an answer of vtysh. Where the protocol is not configured, that is a line of text.
func decode(text string, into any) error {
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, "{") {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	return nil
}

// eachVRF calls read with what an answer says of each VRF. Of several, each has a member of the answer; an answer about
// one has the member that is named.
func eachVRF(text, member string, read func(part string) error) error {
	var all map[string]json.RawMessage
	if err := decode(text, &all); err != nil {
		return err
	}
	if _, one := all[member]; one {
		return read(text)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := read(string(all[name])); err != nil {
			return err
		}
	}
	return nil
}

// add adds a session, once: FRR lists a neighbour once for each address of an interface.
func (v *View) add(s Session) {
	if !slices.Contains(v.Sessions, s) {
		v.Sessions = append(v.Sessions, s)
	}
}

func (v *View) has(protocol, iface string) bool {
	return slices.ContainsFunc(v.Sessions, func(s Session) bool {
		return s.Protocol == protocol && s.Interface == iface
	})
}

// alone notes an interface on which the protocol runs, if there is no neighbour; neighbours are read first.
func (v *View) alone(protocol, iface string) {
	if !v.has(protocol, iface) {
		v.Alone = append(v.Alone, Session{Protocol: protocol, Interface: iface})
	}
}

func readOSPF(text string, v *View) error {
	return eachVRF(text, "neighbors", func(part string) error { return readOSPFOfOne(part, v) })
}

func readOSPFOfOne(text string, v *View) error {
	var all struct {
		Neighbors map[string][]struct {
			State     string `json:"nbrState"`
			Older     string `json:"state"` // FRR 8 and before
			Interface string `json:"ifaceName"`
		} `json:"neighbors"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(all.Neighbors)) {
		for _, n := range all.Neighbors[id] {
			if n.State == "" {
				n.State = n.Older
			}
			iface, _, _ := strings.Cut(n.Interface, ":") // eth1:192.0.2.1
			v.add(Session{"ospf", iface, id, n.State, isFull(n.State)})
		}
	}
	return nil
}

func readOSPFInterfaces(text string, v *View) error {
	return eachVRF(text, "interfaces", func(part string) error { return readOSPFInterfacesOfOne(part, v) })
}

func readOSPFInterfacesOfOne(text string, v *View) error {
	var all struct {
		Interfaces map[string]struct {
			Up      bool   `json:"ifUp"`
			Enabled bool   `json:"ospfEnabled"`
			Type    string `json:"networkType"`
			State   string `json:"state"`
			Passive bool   `json:"timerPassiveIface"`
		} `json:"interfaces"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all.Interfaces)) {
		if i := all.Interfaces[name]; i.Up && i.Enabled && !i.Passive && i.Type != "LOOPBACK" {
			v.alone("ospf", name)
			v.elects("ospf", name, i.State)
		}
	}
	return nil
}

func readOSPF6(text string, v *View) error {
	var all struct {
		Neighbors []struct {
			ID        string `json:"neighborId"`
			State     string `json:"state"`
			Interface string `json:"interfaceName"`
		} `json:"neighbors"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, n := range all.Neighbors {
		v.add(Session{"ospf6", n.Interface, n.ID, n.State, isFull(n.State)})
	}
	return nil
}

func readOSPF6Interfaces(text string, v *View) error {
	var all map[string]struct {
		Status   string `json:"status"`
		Type     string `json:"type"`
		State    string `json:"ospf6InterfaceState"`
		Attached bool   `json:"attachedToArea"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if i := all[name]; i.Status == "up" && i.Attached && i.Type != "LOOPBACK" {
			v.alone("ospf6", name)
			v.elects("ospf6", name, i.State)
		}
	}
	return nil
}

func readISIS(text string, v *View) error {
	var all struct {
		Areas []struct {
			Circuits []struct {
				Adjacency string `json:"adj"`
				Interface string `json:"interface"`
				State     string `json:"state"`
			} `json:"circuits"`
		} `json:"areas"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, area := range all.Areas {
		for _, c := range area.Circuits {
			if c.Adjacency != "" {
				v.add(Session{"isis", c.Interface, c.Adjacency, c.State, c.State == "Up"})
			}
		}
	}
	return nil
}

func readISISInterfaces(text string, v *View) error {
	var all struct {
		Areas []struct {
			Circuits []struct {
				Interface struct {
					Name  string `json:"name"`
					State string `json:"state"`
					Type  string `json:"type"`
				} `json:"interface"`
			} `json:"circuits"`
		} `json:"areas"`
	}
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, area := range all.Areas {
		for _, c := range area.Circuits {
			if c.Interface.State == "Up" && c.Interface.Type != "loopback" {
				v.alone("isis", c.Interface.Name)
			}
		}
	}
	return nil
}

// readBGP reads peers by address family, and by VRF where an answer is about all, with other members beside.
func readBGP(text string, v *View) error { return readBGPOf(text, v, true) }

func readBGPOf(text string, v *View, ofVRFs bool) error {
	var all map[string]json.RawMessage
	if err := decode(text, &all); err != nil {
		return err
	}
	for _, family := range slices.Sorted(maps.Keys(all)) {
		var one struct {
			Peers map[string]struct {
				State string `json:"state"`
			} `json:"peers"`
		}
		if json.Unmarshal(all[family], &one) != nil {
			continue // no family
		}
		if one.Peers == nil && ofVRFs { // no family either, but perhaps a VRF, which has some
			if err := readBGPOf(string(all[family]), v, false); err != nil {
				return err
			}
		}
		for _, peer := range slices.Sorted(maps.Keys(one.Peers)) {
			state := one.Peers[peer].State
			if state == "Idle (Admin)" { // shut down by its configuration
				continue
			}
			v.add(Session{"bgp", "", peer, state, state == "Established"})
		}
	}
	return nil
}
