package wire

import "testing"

// A number that is held is given to nobody, also when it is the last one.
func TestHeldNumbersAreNotGiven(t *testing.T) {
	s := &HostNetwork{}
	held := make(map[int]bool)
	for index := range 16384 {
		held[index] = true
	}
	s.Hold(held)
	if index, err := s.addVeth(veth{name: "port"}); err == nil {
		t.Errorf("got %d, which is held", index)
	}
}
