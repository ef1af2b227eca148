package datapath

import "testing"

// An entry whose frames cannot come leads nowhere, and nothing would say why.
func TestLabelsOfFramesThatCannotComeAreRefused(t *testing.T) {
	d := new(DataPath) // nothing is asked of it
	way := NHLFE{Port: 7, Push: []Label{{Label: 16}}}
	by := func(port int) NHLFE {
		n := way
		n.In = port
		return n
	}
	for name, err := range map[string]error{
		"a negative port":        d.SetLabel(1, 16, by(-1)),
		"a port out of range":    d.SetLabel(1, 16, by(MaxPorts)),
		"a pop by such a port":   d.SetLabel(1, 16, NHLFE{Pop: true, In: MaxPorts}),
		"first labels by a port": d.SetFTN(1, 1, by(3)), // the route decides which frames get them
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if r, err := by(3).record(); err != nil || r.In != 3 {
		t.Errorf("port 3 is %d: %v", r.In, err)
	}
}
